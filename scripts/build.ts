/**
 * Compiles src/ to dist/, and bundles OpenTelemetry's SDK into the one file that uses it (ADR 20). What dist/ reads at run time besides (proto/, deploy/demo/) stays where it is, next to dist/
 * in the package. dist/sbom.cdx.json lists what is installed with it (CycloneDX). With --try the result is also run from
 * a copy that has no development dependencies.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import { z } from 'zod';
import { bundledPackages, licences } from './bundled-packages.ts';

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

const inDist = join(root, 'dist/observe/opentelemetry.js');

/** The names of the packages that are in dist/ now, and are not installed. */
async function bundleOpenTelemetry(): Promise<readonly string[]> {
  const { metafile } = await build({
    entryPoints: [inDist],
    outfile: inDist,
    allowOverwrite: true,
    absWorkingDir: root,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    mainFields: ['module', 'main'], // as ES modules: those need no require, and what is not used stays out
    external: ['@opentelemetry/api'], // prom-client needs it, too
    metafile: true,
    logLevel: 'warning',
  });
  rmSync(`${inDist}.map`);
  const packages = bundledPackages(metafile);
  writeFileSync(join(root, 'dist/LICENSES.txt'), licences(packages));
  return packages.map((path) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
}

const component = z.looseObject({
  name: z.string(),
  'bom-ref': z.string(),
  properties: z.array(z.looseObject({ name: z.string() })).default([]),
});
const bom = z.looseObject({
  metadata: z.looseObject({ component: z.looseObject({ name: z.string() }) }),
  components: z.array(component),
  dependencies: z.array(z.looseObject({ ref: z.string(), dependsOn: z.array(z.string()).default([]) })),
});
const manifest = z.object({ dependencies: z.record(z.string(), z.string()) });

/** `npm sbom --omit=dev` leaves out what a development dependency needs too, so the list is taken whole and sifted. */
function listDependencies(bundled: readonly string[]): void {
  const list = ['sbom', '--package-lock-only', '--sbom-format=cyclonedx', '--sbom-type=application'];
  const text = execFileSync('npm', list, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { metadata, components, dependencies, ...rest } = bom.parse(JSON.parse(text));
  metadata.component.name = 'distributary'; // npm takes the name of the folder
  const installed = components.filter(
    ({ name, properties }) =>
      bundled.includes(name) ||
      !properties.some((property) => property.name === 'cdx:npm:package:development'),
  );
  const names = new Set(installed.map(({ name }) => name));
  const wanted = Object.keys(
    manifest.parse(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))).dependencies,
  );
  const missing = wanted.filter((name) => !names.has(name));
  if (missing.length > 0) throw new Error(`npm sbom does not list ${missing.join(', ')}`);
  const left = new Set(components.filter((one) => !installed.includes(one)).map((one) => one['bom-ref']));
  const edges = dependencies
    .filter(({ ref }) => !left.has(ref))
    .map((edge) => ({ ...edge, dependsOn: edge.dependsOn.filter((ref) => !left.has(ref)) }));
  const sifted = { ...rest, metadata, components: installed, dependencies: edges };
  writeFileSync(join(root, 'dist/sbom.cdx.json'), `${JSON.stringify(sifted, undefined, 2)}\n`);
}

function tryWithoutDevelopmentDependencies(): void {
  const copy = mkdtempSync(join(tmpdir(), 'distributary-dist-'));
  try {
    for (const path of ['package.json', 'package-lock.json', 'dist', 'proto', 'deploy', 'docs/runbooks']) {
      if (existsSync(join(root, path))) cpSync(join(root, path), join(copy, path), { recursive: true });
    }
    const install = ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
    execFileSync('npm', install, { cwd: copy, stdio: 'inherit' });
    const traces = ['--import', join(copy, 'dist/observe/otlp-spans.js')]; // what the build has bundled
    for (const argument of ['--version', '--help']) {
      execFileSync(join(copy, 'node_modules/.bin/node'), [...traces, join(copy, 'dist/main.js'), argument], {
        cwd: tmpdir(),
        stdio: 'inherit',
      });
    }
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

compile();
listDependencies(await bundleOpenTelemetry());
if (process.argv.includes('--try')) tryWithoutDevelopmentDependencies();
