import { type NamePattern, parseNamePattern } from '../../src/security/pattern.ts';

/** As the configuration reads them. */
export function namePatterns(texts: readonly string[]): readonly NamePattern[] {
  return texts.map((text) => {
    const parsed = parseNamePattern(text);
    if (!parsed.ok) throw new Error(parsed.error);
    return parsed.value;
  });
}
