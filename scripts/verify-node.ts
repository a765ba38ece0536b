/**
 * Compares the Node that npm installed with the one that nodejs.org publishes:
 *
 *     node scripts/verify-node.ts SHASUMS256.txt node-v26.10.0-linux-x64.tar.gz
 *
 * Both files are from https://nodejs.org/dist/vVERSION/; check the signature of SHASUMS256.txt.asc first
 * (https://github.com/nodejs/node#verifying-binaries). Exit status 1: something differs.
 */
import { execFileSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const [sums = '', archive = ''] = process.argv.slice(2);
if (sums === '' || archive === '') {
  console.error('usage: node scripts/verify-node.ts SHASUMS256.txt node-vVERSION-PLATFORM.tar.gz');
  process.exit(2);
}

const published = readFileSync(sums, 'utf8')
  .split('\n')
  .map((line) => line.trim().split(/\s+/))
  .find(([, name]) => name === basename(archive))?.[0];
check(
  `${basename(archive)}: the archive that SHASUMS256.txt lists`,
  sha256(readFileSync(archive)) === published,
);

const folder = basename(archive).replace(/\.tar\.[gx]z$/, '');
const official = execFileSync('tar', ['-xOf', archive, `${folder}/bin/node`], { maxBuffer: 2 ** 30 });
const platform = folder.replace(/^node-v[^-]+-/, '');
const root = join(import.meta.dirname, '..');
const [installed] = globSync(`node_modules/node-${platform}/bin/node`, { cwd: root });
if (installed === undefined) {
  console.error(`node_modules/node-${platform} is not installed: accepted is the archive of this platform`);
  process.exit(2);
}
check(
  `${installed}: the binary in the archive`,
  sha256(readFileSync(join(root, installed))) === sha256(official),
);

function sha256(bytes: Buffer): string {
  return hash('sha256', bytes, 'hex');
}

function check(what: string, holds: boolean): void {
  console.log(`${holds ? 'same     ' : 'DIFFERENT'} ${what}`);
  if (!holds) process.exitCode = 1;
}
