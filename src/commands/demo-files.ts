import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { executable, unpackFiles } from '../package/files.ts';

/** The demo's files on the disk, where a user edits them. */
export interface DemoFiles {
  /** A directory. */
  readonly resources: string;
  /** A file with listeners that clients reject. */
  readonly broken: string;
  /** What was written for the demo. */
  remove(): void;
}

/** Those of the package. The executable writes its own to a temporary directory. */
export function demoFiles(): DemoFiles {
  const directory = executable
    ? mkdtempSync(join(tmpdir(), 'distributary-demo-'))
    : fileURLToPath(new URL('../../deploy/demo', import.meta.url));
  if (executable) unpackFiles('deploy/demo/', directory);
  return {
    resources: join(directory, 'resources'),
    broken: join(directory, 'broken/listeners.yaml'),
    remove() {
      if (executable) rmSync(directory, { recursive: true, force: true });
    },
  };
}
