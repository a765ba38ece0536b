import { fail, ok, type Result } from '../model/result.ts';

/** The values of a flag that is given for each parameter: KEY=VALUE. */
export function readParameters(flag: string, texts: readonly string[]): Result<Record<string, string>> {
  const parameters = new Map<string, string>();
  for (const text of texts) {
    const equals = text.indexOf('=');
    if (equals <= 0) return fail(`${flag} ${JSON.stringify(text)} is not KEY=VALUE, as in env=prod`);
    const key = text.slice(0, equals);
    if (parameters.has(key)) return fail(`${flag} ${key} is given twice`);
    parameters.set(key, text.slice(equals + 1));
  }
  return ok(Object.fromEntries(parameters));
}
