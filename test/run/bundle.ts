import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { root } from './report.ts';

/** Starts a worker process by the file beside its own. */
const startsWorkers = join(root, 'src/workers/worker-process.ts');

/**
 * One file of the relay, and one of its workers: some hundred relays of the tests start from it in half the CPU that
 * their two hundred files take. What they read beside themselves they find where src/ has it.
 */
export async function bundleRelay(): Promise<string> {
  const out = join(root, '.cache/relay');
  const require =
    "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";
  await build({
    absWorkingDir: root,
    entryPoints: ['src/main.ts', 'src/workers/main.ts'],
    outdir: out,
    outbase: 'src',
    outExtension: { '.js': '.mjs' },
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    keepNames: true,
    banner: { js: require },
    logLevel: 'error',
    plugins: [
      {
        name: 'place',
        setup: (bundler) =>
          bundler.onLoad({ filter: /\/src\/.*\.ts$/ }, ({ path }) => {
            const place = path === startsWorkers ? join(out, 'workers/worker-process.mjs') : path;
            const contents = readFileSync(path, 'utf8')
              .replaceAll('import.meta.filename', JSON.stringify(place))
              .replaceAll('import.meta.dirname', JSON.stringify(dirname(place)))
              .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(place).href));
            return { contents, loader: 'ts' };
          }),
      },
    ],
  });
  return join(out, 'main.mjs');
}
