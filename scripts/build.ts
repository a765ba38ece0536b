/**
 * Compiles src/ to dist/. What dist/ reads at run time besides (proto/, deploy/demo/) stays where it is, next to dist/
 * in the package. With --try the result is also run from a copy that has no development dependencies.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const shebang = '#!/usr/bin/env node\n';

function compile(): void {
  const dist = join(root, 'dist');
  rmSync(dist, { recursive: true, force: true });
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  execFileSync(process.execPath, [compiler, '-p', 'tsconfig.build.json'], { cwd: root, stdio: 'inherit' });
  const main = join(dist, 'main.js');
  const code = readFileSync(main, 'utf8').replace(/^#!.*\n/, '');
  writeFileSync(main, shebang + code);
  chmodSync(main, 0o755);
}

function tryWithoutDevelopmentDependencies(): void {
  const copy = mkdtempSync(join(tmpdir(), 'distributary-dist-'));
  try {
    for (const path of ['package.json', 'package-lock.json', 'dist', 'proto', 'deploy']) {
      if (existsSync(join(root, path))) cpSync(join(root, path), join(copy, path), { recursive: true });
    }
    const install = ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
    execFileSync('npm', install, { cwd: copy, stdio: 'inherit' });
    for (const argument of ['--version', '--help']) {
      execFileSync(join(copy, 'node_modules/.bin/node'), [join(copy, 'dist/main.js'), argument], {
        cwd: tmpdir(),
        stdio: 'inherit',
      });
    }
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

compile();
if (process.argv.includes('--try')) tryWithoutDevelopmentDependencies();
