import { readFileSync } from 'node:fs';

/** package.json is one level above both src/ and dist/. */
const file = new URL('../../package.json', import.meta.url);

/** The product's version, as in package.json. */
export function version(): string {
  const parsed: unknown = JSON.parse(readFileSync(file, 'utf8'));
  if (
    typeof parsed === 'object' &&
    parsed !== null &&
    'version' in parsed &&
    typeof parsed.version === 'string'
  ) {
    return parsed.version;
  }
  return 'unknown';
}
