import { mkdtempSync, rmSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * The tests start the relay some hundred times, from its TypeScript. To read and compile that takes half a second of CPU,
 * each time the same: the processes of one run share what was compiled, until whoever began it is done.
 */
export function shareCompiled(): Disposable {
  const shared = process.env['NODE_COMPILE_CACHE'];
  const directory = shared ?? mkdtempSync(join(tmpdir(), 'distributary-compiled-'));
  process.env['NODE_COMPILE_CACHE'] = directory;
  enableCompileCache(directory);
  const end = (): void => {
    if (shared === undefined) rmSync(directory, { recursive: true, force: true });
  };
  // Not after the tests: processes that are about to end may still write into it.
  process.once('exit', end);
  return { [Symbol.dispose]: end };
}

shareCompiled();
