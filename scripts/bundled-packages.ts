import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Metafile } from 'esbuild';

const root = join(import.meta.dirname, '..');

/** The packages that bundles have something of, as paths from the project's root. */
export function bundledPackages(metafiles: readonly Metafile[]): readonly string[] {
  const folder = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/;
  const inputs = metafiles.flatMap((metafile) => Object.keys(metafile.inputs));
  const paths = inputs.map((path) => folder.exec(path)?.[0] ?? '');
  return [...new Set(paths)].filter((path) => path !== '').toSorted();
}

/** The texts of the packages' licences: nearly all licences ask for their text to go along. */
export function licences(packages: readonly string[]): string {
  return packages
    .flatMap((path) => {
      const files = globSync(`${path}/{LICENSE,LICENCE,license}*`, { cwd: root });
      return files.length === 0 ? [`${path}/package.json`] : files; // which says what it is, at least
    })
    .map((path) => `==== ${path}\n\n${readFileSync(join(root, path), 'utf8').trim()}\n`)
    .join('\n');
}
