import { parseArgs } from 'node:util';
import { type Mutation, runMutated } from '../support/mutation.ts';

export const mutations: readonly Mutation[] = [
  {
    name: 'aliases are not looked at',
    file: 'src/security/authorization.ts',
    right: '|| !aliases.every((alias) => this.allows(type, alias))',
    wrong: '|| aliases.length < 0',
  },
  {
    name: 'a rule means a name only as it spells it',
    file: 'src/security/pattern.ts',
    right: 'ok({ text: exact.value.name, prefix: false })',
    wrong: 'ok({ text: pattern, prefix: false })',
  },
  {
    name: 'a rule is for every type',
    file: 'src/security/authorization.ts',
    right: '(types?.has(type) ?? true)',
    wrong: '(types === undefined || type.length > 0)',
  },
  {
    name: "a client's own parameters count under trusted keys",
    file: 'src/security/derive-parameters.ts',
    right: 'for (const key of [...trusted, ...refused]) entries.delete(key);',
    wrong: 'for (const key of refused) entries.delete(key);',
  },
  {
    name: 'a wildcard shows every authority by its own parameters',
    file: 'src/security/authorization.ts',
    right: 'return trusted === parameters || constraints.matches(trusted);',
    wrong: 'return trusted.id > 0;',
  },
  {
    name: 'classes of clients share views',
    file: 'src/views/view-pool.ts',
    right: '${access.key}',
    wrong: '',
  },
  {
    name: 'a reload does not change what clients see',
    file: 'src/views/cursor.ts',
    right: 'before.key !== access.key || ',
    wrong: '',
  },
  {
    name: 'errors about denied names are told',
    file: 'src/views/view.ts',
    right: 'if (!this.#allows(name)) return none;',
    wrong: '',
  },
];

function main(): void {
  const { values } = parseArgs({ options: { cases: { type: 'string', default: '5000' } } });
  console.log('| mutation | in | caught after cases |\n|-|-|-|');
  for (const mutation of mutations) {
    const run = runMutated(mutation, 'test/tenants/main.ts', ['--brief', '--cases', values.cases]);
    const caught = /^failed after (\d+)/m.exec(run.stdout);
    if (caught === null && run.status !== 0) throw new Error(run.stderr);
    if (caught === null) process.exitCode = 1;
    console.log(`| ${mutation.name} | \`${mutation.file}\` | ${caught?.[1] ?? 'not caught'} |`);
  }
}

if (import.meta.main) main();
