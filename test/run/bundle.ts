import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { build, type Plugin } from 'esbuild';
import { root } from './report.ts';

const out = join(root, '.cache/relay');
const script = join(out, 'relay.cjs');
/** Starts a worker process by the file beside its own. */
const startsWorkers = join(root, 'src/workers/worker-slot.ts');

/**
 * Imports the compiled relay. Node's own compile cache has only what is compiled before a module runs, here a quarter:
 * V8 makes the rest anew in each process.
 */
const load = `import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants, Script } from 'node:vm';

const filename = ${JSON.stringify(script)};
const compiled = ${JSON.stringify(join(out, 'relay.compiled'))};
const cachedData = existsSync(compiled) ? readFileSync(compiled) : undefined;
const importModuleDynamically = constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
const code = '(function (require, module, exports) {' + readFileSync(filename, 'latin1') + '})';
const script = new Script(code, { filename, cachedData, importModuleDynamically });
const module = { exports: {} };
script.runInThisContext()(createRequire(filename), module, module.exports);
if (process.env.TESTS_COMPILE) process.once('exit', () => writeFileSync(compiled, script.createCachedData()));
export const { command, worker } = module.exports;
`;

/** What its modules name by `import.meta` they find where src/ has it. */
const inPlace: Plugin = {
  name: 'place',
  setup: (bundler) => {
    bundler.onLoad({ filter: /\/src\/.*\.ts$/ }, ({ path }) => {
      const place = path === startsWorkers ? join(out, 'workers/worker-process.mjs') : path;
      const contents = readFileSync(path, 'utf8')
        .replaceAll('import.meta.filename', JSON.stringify(place))
        .replaceAll('import.meta.dirname', JSON.stringify(dirname(place)))
        .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(place).href));
      return { contents, loader: 'ts' };
    });
  },
};

/**
 * The relay as one script that V8 has compiled already: some hundred relays and workers of the tests start from it, in six
 * tenths of the CPU that their two hundred files take. The path of its command.
 */
export async function bundleRelay(): Promise<string> {
  if (!readFileSync(startsWorkers, 'utf8').includes('import.meta.filename'))
    throw new Error(`${startsWorkers} does not say any more where a worker's program is`);
  rmSync(out, { recursive: true, force: true });
  await build({
    absWorkingDir: root,
    stdin: {
      contents: `export const command = () => import('./src/commands/command-line.ts');
        export const worker = () => import('./src/workers/main.ts');`,
      resolveDir: root,
    },
    outfile: script,
    bundle: true,
    platform: 'node',
    format: 'cjs',
    target: 'node24',
    keepNames: true,
    legalComments: 'none',
    minifyWhitespace: true, // without comments all of it is ASCII
    logLevel: 'error',
    plugins: [inPlace],
  });
  mkdirSync(join(out, 'workers'));
  writeFileSync(join(out, 'load.mjs'), load);
  const main = join(out, 'main.mjs');
  writeFileSync(
    main,
    `import { command } from './load.mjs';\nprocess.exitCode = await (await command()).commandLine(process.argv.slice(2));\n`,
  );
  writeFileSync(join(out, 'workers/main.mjs'), `import { worker } from '../load.mjs';\nawait worker();\n`);
  await promisify(execFile)(process.execPath, [main, 'demo', '--once'], {
    env: { ...process.env, TESTS_COMPILE: 'true' },
  });
  return main;
}
