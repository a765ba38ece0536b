import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '../../..');

/** Where what the tests download lasts, for all clones of this user. */
export const downloads = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'distributary');

/** A folder for something that is downloaded once. */
export const cached = (name: string): string => folder(join(downloads, name));

/** The folder of programs that are built from this clone. */
export const built = (): string => folder(join(root, '.cache/built'));

function folder(path: string): string {
  mkdirSync(path, { recursive: true });
  return path;
}

export interface TemporaryDirectory extends Disposable {
  readonly path: string;
}

export function temporaryDirectory(): TemporaryDirectory {
  const path = mkdtempSync(join(tmpdir(), 'distributary-e2e-'));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
