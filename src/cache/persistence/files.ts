import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { SetAside } from './records.ts';

/** SQLite's own, beside the database. */
const companions = ['-wal', '-shm', '-journal'];

export const databaseFile = (directory: string): string => join(directory, 'cache.sqlite');

/** Makes the directory and an empty file, where there are none. Nobody else may read them: they may hold secrets. */
export function prepareFile(directory: string): void {
  makeDirectory(resolve(directory));
  closeSync(openSync(databaseFile(directory), 'a', 0o600));
}

/** Not mkdir's own `recursive`: where nothing can be made (below /proc, an automounter's), it tries for ever. */
function makeDirectory(directory: string): void {
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true) return;
  const above = dirname(directory);
  if (above !== directory) makeDirectory(above);
  mkdirSync(directory, { mode: 0o700 });
}

/** Renames the database files, so that an operator can look into them. Undefined: the database is empty. */
export function setFileAside(directory: string, reason: string): SetAside | undefined {
  const file = databaseFile(directory);
  if (!existsSync(file) || statSync(file).size === 0) return undefined;
  const time = new Date().toISOString().replaceAll(/[-:]/g, '');
  const aside = `${file}.set-aside-${time}`;
  for (const companion of companions) {
    if (existsSync(file + companion)) renameSync(file + companion, aside + companion);
  }
  renameSync(file, aside);
  return { file: aside, reason };
}

/** A copy that can be opened where the directory itself cannot be written to; to be deleted after use. */
export function copyOfFile(directory: string): { readonly file: string; readonly remove: () => void } {
  const copy = mkdtempSync(join(tmpdir(), 'distributary-'));
  const remove = (): void => rmSync(copy, { recursive: true, force: true });
  try {
    for (const companion of ['', '-wal']) {
      const file = databaseFile(directory) + companion;
      if (!existsSync(file)) continue;
      copyFileSync(file, databaseFile(copy) + companion);
      chmodSync(databaseFile(copy) + companion, 0o600);
    }
  } catch (error) {
    remove();
    throw error;
  }
  return { file: databaseFile(copy), remove };
}
