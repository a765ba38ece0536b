import type { StringMatcher } from '../gen/envoy/type/matcher/v3/string_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { compileBounded } from '../security/pattern.ts';

/** envoy.type.matcher.v3.StringMatcher as a function. The error says which part is not accepted. */
export function compileStringMatcher(matcher: StringMatcher): Result<(text: string) => boolean> {
  const fold = (text: string): string => (matcher.ignoreCase ? text.toLowerCase() : text);
  const { matchPattern } = matcher;
  switch (matchPattern.case) {
    case 'exact':
      return ok((text) => fold(text) === fold(matchPattern.value));
    case 'prefix':
      return ok((text) => fold(text).startsWith(fold(matchPattern.value)));
    case 'suffix':
      return ok((text) => fold(text).endsWith(fold(matchPattern.value)));
    case 'contains':
      return ok((text) => fold(text).includes(fold(matchPattern.value)));
    case 'safeRegex': {
      const pattern = compileBounded(matchPattern.value.regex);
      return pattern.ok ? pattern : fail(`safe_regex: ${pattern.error}`);
    }
    case 'custom':
    case undefined:
      return fail('expected exact, prefix, suffix, contains or safe_regex');
    default:
      return matchPattern satisfies never;
  }
}
