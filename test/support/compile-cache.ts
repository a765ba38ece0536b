import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

/**
 * The tests start processes some hundred times, and many from TypeScript. To strip and compile that takes half a second of
 * CPU, each time the same: what was compiled is kept. V8 looks whether it is of the same text.
 */
const directory = process.env['NODE_COMPILE_CACHE'] ?? join(import.meta.dirname, '../../.cache/compiled');
process.env['NODE_COMPILE_CACHE'] = directory;
enableCompileCache(directory);
