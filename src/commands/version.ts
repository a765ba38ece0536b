import { packageFile } from '../package/files.ts';

/** The product's version, as in package.json. */
export function version(): string {
  const parsed: unknown = JSON.parse(packageFile('package.json').toString());
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
