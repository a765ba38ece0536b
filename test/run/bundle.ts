import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build, type Plugin } from 'esbuild';
import { bundleThreads, commonjs, settings } from '../../scripts/bundle.ts';
import { script } from './bundled-program.ts';
import { root } from './report.ts';

/** Its main.js loads the script, as src/main.ts loads what is in src/. */
const loadsScript: Plugin = {
  name: 'program',
  setup: (bundler) => {
    bundler.onResolve({ filter: /^\.\/program\.ts$/ }, () => ({
      path: join(root, 'test/run/bundled-program.ts'),
    }));
  },
};

/**
 * The relay as one script that V8 has compiled already: some hundred relays and workers of the tests start from it, in a
 * third of the CPU that their hundreds of files take. The path of its command.
 */
export async function bundleRelay(): Promise<string> {
  const out = join(root, '.cache/relay');
  rmSync(out, { recursive: true, force: true });
  const main = join(out, 'main.js');
  const outfile = join(out, script);
  await build({
    ...settings,
    entryPoints: ['src/main.ts'],
    outfile: main,
    format: 'esm',
    plugins: [loadsScript],
  });
  await bundleThreads(out);
  await build({
    ...settings,
    ...commonjs,
    entryPoints: ['src/program.ts'],
    outfile,
    // V8 calls it as Node calls a CommonJS module.
    banner: { js: '(function (require, module, exports, __filename, __dirname) {' },
    footer: { js: '})' },
  });
  // It is read as Latin-1, which V8 need not decode.
  if (/[^\0-\u{7f}]/u.test(readFileSync(outfile, 'latin1'))) throw new Error(`${outfile} is not ASCII`);
  const compile = [join(root, 'test/run/compile-bundle.ts'), outfile, 'demo', '--once'];
  await promisify(execFile)(process.execPath, compile);
  return main;
}
