/**
 * Bundles src/ into dist/, with all of its packages (ADR 184). What it reads at run time besides (proto/, deploy/demo/,
 * docs/runbooks/) stays where it is, next to dist/ in the package. dist/sbom.cdx.json lists what is in it and what is
 * installed with it (CycloneDX), dist/LICENSES.txt has the licences. With --try the result is also run from a copy in which
 * nothing is installed.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { bundleMain, bundleScripts, bundleThreads, compileScripts } from './bundle.ts';
import { bundledPackages, licences } from './bundled-packages.ts';

const root = join(import.meta.dirname, '..');
const dist = join(root, 'dist');
const shebang = '#!/usr/bin/env node\n';

/** The packages that are in dist/ now, as paths from the project's root. */
async function bundle(): Promise<readonly string[]> {
  rmSync(dist, { recursive: true, force: true });
  await bundleMain({ outdir: dist });
  const main = join(dist, 'main.js');
  writeFileSync(main, shebang + readFileSync(main, 'utf8'));
  chmodSync(main, 0o755);
  const scripts = await bundleScripts(dist);
  const threads = await bundleThreads(dist, { whole: false });
  const packages = bundledPackages([...scripts.metafiles, ...threads.metafiles]);
  writeFileSync(join(dist, 'LICENSES.txt'), licences(packages));
  return packages;
}

const component = z.looseObject({ name: z.string(), 'bom-ref': z.string() });
const bom = z.looseObject({
  metadata: z.looseObject({ component: z.looseObject({ name: z.string() }) }),
  components: z.array(component),
  dependencies: z.array(z.looseObject({ ref: z.string(), dependsOn: z.array(z.string()).default([]) })),
});
const manifest = z.object({
  name: z.string(),
  version: z.string(),
  dependencies: z.record(z.string(), z.string()).default({}),
  optionalDependencies: z.record(z.string(), z.string()).default({}),
});
const manifestOf = (path: string) =>
  manifest.parse(JSON.parse(readFileSync(join(root, path, 'package.json'), 'utf8')));

/** `npm sbom` lists what a developer installs, so the list is taken whole and sifted. */
function listDependencies(packages: readonly string[]): void {
  const list = ['sbom', '--package-lock-only', '--sbom-format=cyclonedx', '--sbom-type=application'];
  const text = execFileSync('npm', list, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { metadata, components, dependencies, ...rest } = bom.parse(JSON.parse(text));
  const { name: product, dependencies: wanted, optionalDependencies: nodes } = manifestOf('.');
  metadata.component.name = product; // npm takes the name of the folder
  const bundled = packages.map(manifestOf);
  const missing = Object.keys(wanted).filter((one) => !bundled.some(({ name }) => name === one));
  if (missing.length > 0) throw new Error(`dist/ has nothing of ${missing.join(', ')}`);
  const refs = new Set(bundled.map(({ name, version }) => `${name}@${version}`));
  const kept = components.filter((one) => refs.has(one['bom-ref']) || one.name in nodes);
  const left = new Set(components.filter((one) => !kept.includes(one)).map((one) => one['bom-ref']));
  const unlisted = [...refs].filter((ref) => !kept.some((one) => one['bom-ref'] === ref));
  if (unlisted.length > 0) throw new Error(`npm sbom does not list ${unlisted.join(', ')}`);
  const edges = dependencies
    .filter(({ ref }) => !left.has(ref))
    .map((edge) => ({ ...edge, dependsOn: edge.dependsOn.filter((ref) => !left.has(ref)) }));
  const sifted = { ...rest, metadata, components: kept, dependencies: edges };
  writeFileSync(join(dist, 'sbom.cdx.json'), `${JSON.stringify(sifted, undefined, 2)}\n`);
}

function tryWhereNothingIsInstalled(): void {
  const copy = mkdtempSync(join(tmpdir(), 'distributary-dist-'));
  try {
    for (const path of ['package.json', 'dist', 'proto', 'deploy', 'docs/runbooks'])
      cpSync(join(root, path), join(copy, path), { recursive: true });
    for (const args of [['--version'], ['--help'], ['demo', '--once']])
      execFileSync(process.execPath, [join(copy, 'dist/main.js'), ...args], {
        cwd: tmpdir(),
        stdio: 'inherit',
      });
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

listDependencies(await bundle());
compileScripts(dist);
if (process.argv.includes('--try')) tryWhereNothingIsInstalled();
