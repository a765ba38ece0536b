import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { getAssetKeys, getRawAsset, isSea } from 'node:sea';

/** Whether this is the single executable: it has the package's files inside, and not on the disk. */
export const executable: boolean = isSea();

/** The content of a file of the package, by its path from the package's root. Not to be changed. */
export function packageFile(path: string): Buffer {
  // The root is two levels above this file, in src/ and in dist/.
  if (!executable) return readFileSync(new URL(`../../${path}`, import.meta.url));
  return Buffer.from(getRawAsset(path));
}

/** Writes the executable's files below `folder`, with a slash at its end, into a directory. */
export function unpackFiles(folder: string, directory: string): void {
  for (const path of getAssetKeys().filter((key) => key.startsWith(folder))) {
    const file = join(directory, path.slice(folder.length));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, packageFile(path));
  }
}

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

/**
 * Makes a directory and those above it, where they are not there yet; only its owner may read them. Not mkdir's own
 * `recursive`: where nothing can be made (below /proc, an automounter's), it tries for ever.
 */
export function makeDirectory(directory: string): void {
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true) return;
  const above = dirname(directory);
  if (above !== directory) makeDirectory(above);
  mkdirSync(directory, { mode: 0o700 });
}
