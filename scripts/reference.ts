/**
 * Writes docs/reference: commands, metrics, errors and the admin RPC, each from the code. With --check it writes nothing
 * and fails if a page is out of date.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { adminRpc } from './reference/admin-rpc.ts';
import { commands } from './reference/commands.ts';
import { errors } from './reference/errors.ts';
import { metrics } from './reference/metrics.ts';

const directory = join(import.meta.dirname, '../docs/reference');
const pages = new Map([
  ['commands.md', await commands()],
  ['metrics.md', metrics()],
  ['errors.md', errors()],
  ['admin-rpc.md', adminRpc()],
]);

const check = process.argv.includes('--check');
mkdirSync(directory, { recursive: true });
for (const [name, text] of pages) {
  const path = join(directory, name);
  if (!check) writeFileSync(path, text);
  else if (!existsSync(path) || readFileSync(path, 'utf8') !== text) {
    process.stderr.write(`out of date: docs/reference/${name}; run npm run generate\n`);
    process.exitCode = 1;
  }
}
