/**
 * Writes docs/reference (commands, metrics, errors, problems and the admin RPC) and the
 * README of the chart, each from the code. With --check it writes nothing and fails if one is out of date.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { adminRpc } from './reference/admin-rpc.ts';
import { chartValues } from './reference/chart.ts';
import { commands } from './reference/commands.ts';
import { errors } from './reference/errors.ts';
import { metrics } from './reference/metrics.ts';
import { problems } from './reference/problems.ts';

const root = join(import.meta.dirname, '..');
const pages = new Map([
  ['docs/reference/commands.md', await commands()],
  ['docs/reference/metrics.md', metrics()],
  ['docs/reference/errors.md', errors()],
  ['docs/reference/problems.md', problems()],
  ['docs/reference/admin-rpc.md', adminRpc()],
  ['deploy/chart/README.md', chartValues()],
]);

const check = process.argv.includes('--check');
mkdirSync(join(root, 'docs/reference'), { recursive: true });
for (const [name, text] of pages) {
  const path = join(root, name);
  if (!check) writeFileSync(path, text);
  else if (!existsSync(path) || readFileSync(path, 'utf8') !== text) {
    process.stderr.write(`out of date: ${name}; run npm run generate\n`);
    process.exitCode = 1;
  }
}
