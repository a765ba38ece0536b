import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { getAssetKeys, getRawAsset, isSea } from 'node:sea';
import type { WorkerOptions } from 'node:worker_threads';

/** Whether this is the single executable: it has the package's files inside, and not on the disk. */
export const executable: boolean = isSea();

/** Whether this is src/ itself. Else it is bundled, with the programs of threads beside it. */
export const fromSource: boolean = extname(import.meta.filename) === '.ts';

/** The content of a file of the package, by its path from the package's root. Not to be changed. */
export function packageFile(path: string): Buffer {
  if (!executable) return readFileSync(packagePath(path));
  return Buffer.from(getRawAsset(path));
}

/** Where a file of the package is. The executable has none on the disk. */
export function packagePath(path: string): string {
  let root = dirname(import.meta.dirname);
  while (!existsSync(join(root, 'package.json')) && root !== dirname(root)) root = dirname(root);
  return join(root, path);
}

/** The program that this process runs, for one more process of it. */
export function programPath(): string {
  if (executable) return process.execPath;
  return join(import.meta.dirname, fromSource ? '../main.ts' : 'main.js');
}

/** The program of a thread, by its path in src/ without an ending: what `new Worker()` is given. */
export function threadProgram(path: string): readonly [string, WorkerOptions] {
  const script = `${basename(path)}.cjs`;
  if (executable) return [packageFile(script).toString(), { eval: true }];
  return [join(import.meta.dirname, fromSource ? `../${path}.ts` : script), {}];
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
  const said: unknown = Reflect.get(Object(JSON.parse(packageFile('package.json').toString())), 'version');
  return typeof said === 'string' ? said : 'unknown';
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

/** So many files of one name that were set aside are kept. */
const mostAside = 2;

/** It keeps its name too, where the file system can: a crash must not leave nothing under it. */
export function linkOrRename(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    renameSync(from, to);
  }
}

/**
 * Renames a file that is not what was written, and with it its companions, so that an operator can look into it. Of those
 * that were set aside before only the newest stay: a disk that damages files must not be filled with them. Returns the
 * new name. `move`: `linkOrRename` where another file takes its place at once.
 */
export function setAside(
  file: string,
  companions: readonly string[] = [],
  move: (from: string, to: string) => void = renameSync,
): string {
  const mark = `${basename(file)}.set-aside-`;
  const aside = join(dirname(file), mark + new Date().toISOString().replaceAll(/[-:]/g, ''));
  for (const companion of companions)
    if (existsSync(file + companion)) renameSync(file + companion, aside + companion);
  move(file, aside);
  const all = readdirSync(dirname(file)).filter((one) => one.startsWith(mark));
  const kept = all
    .filter((one) => !companions.some((companion) => one.endsWith(companion)))
    .toSorted()
    .slice(-mostAside);
  for (const one of all)
    if (!kept.some((name) => one.startsWith(name))) rmSync(join(dirname(file), one), { force: true });
  return aside;
}
