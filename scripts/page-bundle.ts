/** The program and the style of the status page (page/), as one module that the relay serves. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, type Metafile } from 'esbuild';

const root = join(import.meta.dirname, '..');

/** The text of src/gen/page.ts. */
export async function pageModule(): Promise<string> {
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: ['page/main.tsx', 'page/fallback.css'],
    outdir: 'out',
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: 'iife',
    target: ['es2022'],
    // Letters of the style and the program alone: whatever the encoding of the page.
    charset: 'ascii',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    tsconfigRaw: {},
    legalComments: 'none',
  });
  const text = (ending: string): string =>
    outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? '';
  const notices = [...new Set(packagesOf(metafile))].toSorted().map(notice);
  return [
    '// Made of page/ by scripts/generate.ts. It holds these packages:',
    ...notices,
    `export const script: string = ${JSON.stringify(text('main.js').replaceAll('</', String.raw`<\/`))};`,
    `export const style: string = ${JSON.stringify(text('main.css'))};`,
    `export const fallbackStyle: string = ${JSON.stringify(text('fallback.css'))};`,
    '',
  ].join('\n');
}

function packagesOf({ inputs }: Metafile): readonly string[] {
  return Object.keys(inputs).flatMap((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []);
}

/** Their licences ask for the text to go along. */
function notice(name: string): string {
  const directory = join(root, 'node_modules', name);
  const file = ['LICENSE', 'LICENSE.md', 'LICENSE.txt']
    .map((one) => join(directory, one))
    .find((one) => existsSync(one));
  if (file === undefined) throw new Error(`${name} has no licence file`);
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  return [`//\n// ${name}`, ...lines.map((line) => `// ${line}`.trimEnd())].join('\n');
}
