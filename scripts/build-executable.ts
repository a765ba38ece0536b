/**
 * Builds build/distributary, one file with Node in it: the scripts of src/, and what the command reads at run time, as
 * assets (Node's single executable applications). build/LICENSES.txt has the licences of all that is in it.
 *
 *     node scripts/build-executable.ts [--output FILE] [--node FILE]
 *
 * --node: the Node to put it into, for another platform than this one; of the version that runs this script.
 */
import { execFileSync } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { bundleMain, bundleScripts, bundleThreads, compileScripts } from './bundle.ts';
import { bundledPackages, licences } from './bundled-packages.ts';

const root = join(import.meta.dirname, '..');
/** The first Node that knows --build-sea with an ES module. */
const oldest = 26;
const { values } = parseArgs({ options: { output: { type: 'string' }, node: { type: 'string' } } });
const output = resolve(values.output ?? join(root, 'build/distributary'));

if (Number.parseInt(process.versions.node, 10) < oldest) {
  process.stderr.write(
    `this needs Node ${oldest} (npm run build:executable has it); this is ${process.version}\n`,
  );
  process.exit(1);
}

// In the project, where the scripts find the package's files while they are compiled.
mkdirSync(join(root, 'build'), { recursive: true });
const work = mkdtempSync(join(root, 'build/work-'));
try {
  const main = join(work, 'main.mjs');
  await bundleMain({ outfile: main });
  const scripts = await bundleScripts(work);
  const threads = await bundleThreads(work, { whole: true });
  const compiled = values.node === undefined ? await compile() : [];
  const packaged = [
    'package.json',
    'proto/envoy-api.binpb.zst',
    ...globSync('{deploy/demo/{resources,broken},docs/runbooks}/*', { cwd: root }),
  ];
  const own = [...scripts.names, ...threads.names, ...compiled];
  const assets = Object.fromEntries([
    ...packaged.map((path) => [path, join(root, path)] as const),
    ...own.map((name) => [name, join(work, name)] as const),
  ]);
  const settings = {
    main,
    mainFormat: 'module',
    output,
    executable: values.node ?? process.execPath,
    disableExperimentalSEAWarning: true,
    assets,
  };
  const file = join(work, 'sea.json');
  writeFileSync(file, JSON.stringify(settings));
  mkdirSync(dirname(output), { recursive: true });
  execFileSync(process.execPath, ['--build-sea', file], { stdio: ['ignore', 'ignore', 'inherit'] });
  const node = globSync('node_modules/node-{linux,darwin,bin-darwin}-*', { cwd: root });
  const packages = [...node, ...bundledPackages([...scripts.metafiles, ...threads.metafiles])];
  const ours = readFileSync(join(root, 'LICENSE'), 'utf8');
  writeFileSync(join(dirname(output), 'LICENSES.txt'), `${ours}\n${licences(packages)}`);
  const megabytes = (path: string): string => (statSync(path).size / 1e6).toFixed(1);
  process.stdout.write(
    `${relative(process.cwd(), output)}: ${megabytes(output)} MB, of which Node is ${megabytes(values.node ?? process.execPath)} MB\n`,
  );
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** V8's code is for the Node that runs this script. With --node nobody can say what another one would make of it. */
async function compile(): Promise<readonly string[]> {
  await bundleMain({ outdir: work });
  compileScripts(work);
  return globSync('compiled/*/*', { cwd: work });
}
