import { mkdtempSync, rmSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * The tests start the relay some hundred times, from its TypeScript. To read and compile that takes half a second of CPU,
 * each time the same: the processes of one run share what was compiled.
 */
const directory = mkdtempSync(join(tmpdir(), 'distributary-compiled-'));
process.env['NODE_COMPILE_CACHE'] = directory;
enableCompileCache(directory);

export const mochaHooks: Mocha.RootHookObject = {
  afterAll() {
    rmSync(directory, { recursive: true, force: true });
  },
};
