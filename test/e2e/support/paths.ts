import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '../../..');

/** A folder below the project's git-ignored cache. What is fetched or built lasts from one run of the tests to the next. */
export function cached(name: string): string {
  const path = join(root, '.cache', name);
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
