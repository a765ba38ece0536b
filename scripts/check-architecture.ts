/**
 * Checks the rules of .dependency-cruiser.cjs, and that the check itself works: that every file of src/ was read, and
 * that each rule finds a violation in a sample made for it. A cruiser that can't read TypeScript is silently content.
 */
import { globSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { cruise, type ICruiseResult } from 'dependency-cruiser';
import extractConfig from 'dependency-cruiser/config-utl/extract-depcruise-config';

const root = join(import.meta.dirname, '..');
const { forbidden = [], options } = await extractConfig(join(root, '.dependency-cruiser.cjs'));

/** Each rule with files that break it; paths are relative to a project of their own. */
const samples = new Map<string, Readonly<Record<string, string>>>([
  ['layer-package', { 'src/package/a.ts': "import '../model/b.ts';", 'src/model/b.ts': '' }],
  ['layer-gen', { 'src/gen/a.ts': "import '../model/b.ts';", 'src/model/b.ts': '' }],
  ['layer-protobuf', { 'src/protobuf/a.ts': "import '../model/b.ts';", 'src/model/b.ts': '' }],
  ['layer-model', { 'src/model/a.ts': "import type { B } from '../wire/b.ts';", 'src/wire/b.ts': '' }],
  ['layer-wire', { 'src/wire/a.ts': "import '../cache/b.ts';", 'src/cache/b.ts': '' }],
  ['layer-observe', { 'src/observe/a.ts': "import '../config/b.ts';", 'src/config/b.ts': '' }],
  ['layer-security', { 'src/security/a.ts': "import '../admin/b.ts';", 'src/admin/b.ts': '' }],
  ['layer-upstream', { 'src/upstream/a.ts': "import '../relay.ts';", 'src/relay.ts': '' }],
  ['layer-cache', { 'src/cache/a.ts': "import { type B } from '../views/b.ts';", 'src/views/b.ts': '' }],
  ['layer-views', { 'src/views/a.ts': "export { b } from '../cache/b.ts';", 'src/cache/b.ts': '' }],
  ['layer-downstream', { 'src/downstream/a.ts': "import '../views/b.ts';", 'src/views/b.ts': '' }],
  ['layer-load', { 'src/load/a.ts': "import '../downstream/b.ts';", 'src/downstream/b.ts': '' }],
  ['layer-releases', { 'src/releases/a.ts': "import '../downstream/b.ts';", 'src/downstream/b.ts': '' }],
  ['layer-config', { 'src/config/a.ts': "import '../cache/b.ts';", 'src/cache/b.ts': '' }],
  ['below-relay', { 'src/relay.ts': "import './core.ts';", 'src/core.ts': '' }],
  ['below-admin', { 'src/admin/a.ts': "await import('../core.ts');", 'src/core.ts': '' }],
  ['below-distributary', { 'src/core.ts': "import './workers/b.ts';", 'src/workers/b.ts': '' }],
  ['below-workers', { 'src/workers/a.ts': "import '../commands/b.ts';", 'src/commands/b.ts': '' }],
  ['main-is-the-top', { 'src/commands/a.ts': "import '../main.ts';", 'src/main.ts': '' }],
  ['no-cycle', { 'src/wire/a.ts': "import './b.ts';", 'src/wire/b.ts': "import type { A } from './a.ts';" }],
  ['no-orphan', { 'src/cache/a.ts': '' }],
  ['only-src', { 'src/wire/a.ts': "import '../../test/b.ts';", 'test/b.ts': '' }],
  ['only-installed-with-it', { 'src/wire/a.ts': "import 'b';", 'node_modules/b/index.js': '' }],
  ['resolvable', { 'src/wire/a.ts': "import './nowhere.ts';" }],
]);

async function check(directory: string): Promise<ICruiseResult> {
  const { output } = await cruise(['src'], {
    ...options,
    ruleSet: { forbidden },
    validate: true,
    baseDir: directory,
  });
  if (typeof output === 'string') throw new Error('the cruiser gave text instead of a result');
  return output;
}

/** The names of the rules that a project of these files breaks. */
async function broken(files: Readonly<Record<string, string>>): Promise<readonly string[]> {
  const directory = mkdtempSync(join(tmpdir(), 'architecture-'));
  try {
    const all = { 'package.json': '{ "devDependencies": { "b": "*" } }', ...files };
    for (const [path, content] of Object.entries(all)) {
      mkdirSync(dirname(join(directory, path)), { recursive: true });
      writeFileSync(join(directory, path), content);
    }
    const { summary } = await check(directory);
    return summary.violations.map((violation) => violation.rule.name);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

const problems: string[] = [];
const result = await check(root);
for (const { from, to, rule } of result.summary.violations) {
  const comment = forbidden.find(({ name }) => name === rule.name)?.comment ?? '';
  problems.push(`${rule.name}: ${from === to ? from : `${from} → ${to}`} (${comment})`);
}

const cruised = new Set(result.modules.map((module) => module.source));
const files = globSync('src/**/*.ts', { cwd: root });
for (const file of files) if (!cruised.has(file)) problems.push(`not read: ${file}`);
if (files.length === 0) problems.push('there is nothing in src/');

for (const { name = '' } of forbidden) {
  const sample = samples.get(name);
  if (sample === undefined) problems.push(`${name}: has no sample that breaks it`);
  else if (!(await broken(sample)).includes(name)) problems.push(`${name}: does not find its own sample`);
}

for (const problem of problems) process.stderr.write(`${problem}\n`);
const read = `${result.summary.totalCruised} modules, ${result.summary.totalDependenciesCruised ?? 0} imports`;
process.stdout.write(`architecture: ${read}, ${forbidden.length} rules, ${problems.length} problems\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
