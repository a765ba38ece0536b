/** Writes src/gen with `buf generate`. With --check it writes nothing and fails if src/gen is out of date. */
import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pageModule } from './page-bundle.ts';
import { referenceFields } from './reference-fields.ts';

const root = join(import.meta.dirname, '..');
const tools = join(root, 'node_modules/.bin');

async function generate(output: string): Promise<void> {
  execFileSync(join(tools, 'buf'), ['generate', '--output', output], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, PATH: [tools, process.env['PATH']].join(delimiter) }, // buf looks for protoc-gen-es there
  });
  writeFileSync(join(output, 'src/gen/page.ts'), await pageModule());
  writeFileSync(join(output, 'src/gen/reference-fields.ts'), referenceFields());
}

/** Path below src/gen → content. */
function generated(directory: string): ReadonlyMap<string, string> {
  const cwd = join(directory, 'src/gen');
  return new Map(globSync('**/*.ts', { cwd }).map((path) => [path, readFileSync(join(cwd, path), 'utf8')]));
}

async function outdated(): Promise<readonly string[]> {
  const directory = mkdtempSync(join(tmpdir(), 'generate-'));
  try {
    await generate(directory);
    const now = generated(root);
    const wanted = generated(directory);
    const paths = new Set([...now.keys(), ...wanted.keys()]);
    return [...paths].filter((path) => now.get(path) !== wanted.get(path));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

if (process.argv.includes('--check')) {
  const paths = await outdated();
  for (const path of paths) process.stderr.write(`out of date: src/gen/${path}; run npm run generate\n`);
  if (paths.length > 0) process.exitCode = 1;
} else {
  await generate(root);
}
