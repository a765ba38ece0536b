/**
 * Builds build/distributary, one file with Node in it: src/ bundled by esbuild, and what the command reads at run time
 * as assets (Node's single executable applications). build/LICENSES.txt has the licences of all that is in it.
 *
 *     node scripts/build-executable.ts [--output FILE] [--node FILE]
 *
 * --node: the Node to put it into, for another platform than this one; of the version that runs this script.
 */
import { execFileSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build, type Metafile } from 'esbuild';

const root = join(import.meta.dirname, '..');
const { values } = parseArgs({ options: { output: { type: 'string' }, node: { type: 'string' } } });
const output = resolve(values.output ?? join(root, 'build/distributary'));

/** What packages that are no ES modules call. Node has it not in an ES module, and no file is beside the executable. */
const requireOfBuiltins = `import { createRequire as createRequireOfBuiltins } from 'node:module';
const require = createRequireOfBuiltins(process.execPath);`;

async function bundle(entry: string, format: 'esm' | 'cjs', outfile: string): Promise<Metafile> {
  const { metafile } = await build({
    entryPoints: [join(root, entry)],
    outfile,
    absWorkingDir: root,
    bundle: true,
    platform: 'node',
    format,
    target: 'node24',
    keepNames: true, // names of classes are in messages
    metafile: true,
    logLevel: 'warning',
    ...(format === 'esm' ? { banner: { js: requireOfBuiltins } } : {}),
  });
  return metafile;
}

/** The packages that were bundled, as paths from the root. */
function bundledPackages(metafile: Metafile): readonly string[] {
  const folder = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/;
  const paths = Object.keys(metafile.inputs).map((path) => folder.exec(path)?.[0] ?? '');
  return [...new Set(paths)].filter((path) => path !== '').toSorted();
}

/** Nearly all licences ask for their text to go along. */
function licences(metafile: Metafile): string {
  const own = ['LICENSE', ...globSync('node_modules/node-{linux,darwin}-*/LICENSE', { cwd: root })];
  const theirs = bundledPackages(metafile).flatMap((path) => {
    const files = globSync(`${path}/{LICENSE,LICENCE,license}*`, { cwd: root });
    if (files.length === 0)
      process.stderr.write(`${path} has no file LICENSE: package.json says which it is\n`);
    return files.length === 0 ? [`${path}/package.json`] : files;
  });
  return [...own, ...theirs]
    .map((path) => `==== ${path}\n\n${readFileSync(join(root, path), 'utf8').trim()}\n`)
    .join('\n');
}

const work = mkdtempSync(join(tmpdir(), 'distributary-executable-'));
try {
  const main = join(work, 'main.mjs');
  const diskThread = join(work, 'disk-thread.cjs');
  const metafile = await bundle('src/executable.ts', 'esm', main);
  await bundle('src/cache/persistence/disk-thread.ts', 'cjs', diskThread);
  const packaged = [
    'package.json',
    'proto/envoy-api.binpb.zst',
    ...globSync('deploy/demo/{resources,broken}/*', { cwd: root }),
  ];
  const assets = Object.fromEntries(packaged.map((path) => [path, join(root, path)]));
  const settings = {
    main,
    mainFormat: 'module',
    output,
    executable: values.node ?? process.execPath,
    disableExperimentalSEAWarning: true,
    assets: { ...assets, 'disk-thread.cjs': diskThread },
  };
  const file = join(work, 'sea.json');
  writeFileSync(file, JSON.stringify(settings));
  mkdirSync(dirname(output), { recursive: true });
  execFileSync(process.execPath, ['--build-sea', file], { stdio: ['ignore', 'ignore', 'inherit'] });
  writeFileSync(join(dirname(output), 'LICENSES.txt'), licences(metafile));
  const megabytes = (path: string): string => (statSync(path).size / 1e6).toFixed(1);
  process.stdout.write(
    `${relative(process.cwd(), output)}: ${megabytes(output)} MB, of which ${megabytes(main)} MB are distributary\n`,
  );
} finally {
  rmSync(work, { recursive: true, force: true });
}
