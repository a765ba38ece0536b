import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

/** One line of the relay, made wrong on purpose. */
interface Mutation {
  readonly name: string;
  /** The rule that it breaks. */
  readonly rule: number;
  readonly file: string;
  readonly right: string;
  readonly wrong: string;
}

const mutations: readonly Mutation[] = [
  {
    name: 'a client gets a variant whatever its parameters',
    rule: 1,
    file: 'src/model/variant-index.ts',
    right: 'return held.constraints.matches(parameters) ? [held] : [];',
    wrong: 'return parameters === undefined ? [] : [held];',
  },
  {
    name: 'shared responses outlive the change that overtakes them',
    rule: 1,
    file: 'src/views/view.ts',
    right: '    this.frames.clear();',
    wrong: '',
  },
  {
    name: 'what upstream has not answered yet is taken to be absent',
    rule: 2,
    file: 'src/cache/store.ts',
    right: "?.answered === true ? 'absent' : 'unknown'",
    wrong: "?.answered === true ? 'absent' : 'absent'",
  },
  {
    name: 'the first response after a reconnect replaces all that was held',
    rule: 2,
    file: 'src/upstream/ads/session-machine.ts',
    right: '#connect(resumed: boolean): void {',
    wrong:
      '#connect(resumed: boolean): void {\n    for (const state of this.#types.values()) this.#say(state, { complete: true });',
  },
  {
    name: 'a swap of variants leaves the one before with the client',
    rule: 3,
    file: 'src/views/compose.ts',
    right: 'if (isVariant(held)) content.swap(item, held, now);',
    wrong: '',
  },
  {
    name: 'a wildcard does not see what is new',
    rule: 4,
    file: 'src/views/view.ts',
    right: '    this.items.set(id, item);\n    this.#touch(item, commit);',
    wrong: '    this.items.set(id, item);',
  },
  {
    name: 'one subscriber of a changed view is not woken',
    rule: 4,
    file: 'src/views/fan-out.ts',
    right: '      subscriber.wake();',
    wrong: '      if (count !== 2) subscriber.wake();',
  },
  {
    name: 'a restored wildcard is not known until upstream confirms it',
    rule: 4,
    file: 'src/cache/store.ts',
    right: '      state.answered = answered;',
    wrong: "      state.answered = answered && interest.selector !== '*';",
  },
  {
    name: 'an answer from before a restart is taken for confirmed',
    rule: 2,
    file: 'src/cache/store.ts',
    right: '      state.restored = answered;',
    wrong: '      state.restored = false;',
  },
  {
    name: 'what is restored goes as soon as upstream answers anything of its type',
    rule: 2,
    file: 'src/cache/restored.ts',
    right: '    if (state.restored && (',
    wrong: '    if (false && (',
  },
  {
    name: 'what upstream removed is not written',
    rule: 4,
    file: 'src/cache/store.ts',
    right: '    for (const name of changed.keys()) this.#journal.resource(type, name);',
    wrong:
      '    for (const name of changed.keys()) if (this.#tables.get(type)?.cells.has(name)) this.#journal.resource(type, name);',
  },
  {
    name: 'a change sends everything again',
    rule: 5,
    file: 'src/views/compose.ts',
    right: '  if (forced) return true;',
    wrong: '  if (forced || held !== undefined) return true;',
  },
  {
    name: 'what is rejected alone is sent again, for ever',
    rule: 5,
    file: 'src/views/rejected.ts',
    right: 'return parts.size < 2 ? [] : [...parts.values()];',
    wrong: 'return [...parts.values()];',
  },
  {
    name: 'removals do not wait for the other types',
    rule: 6,
    file: 'src/downstream/stream.ts',
    right: 'const keepRemoved = this.#types.length > 1 && this.#ordered(type) && this.#othersDue(type);',
    wrong: 'const keepRemoved = false;',
  },
];

const root = new URL('../..', import.meta.url).pathname;
const { values } = parseArgs({ options: { seeds: { type: 'string', default: '2000' } } });

/** The first seed that shows a mutation, in a copy of the sources, and by which rule. */
function firstToCatch({ name, file, right, wrong }: Mutation): { seed: number; rule: number } | undefined {
  const copy = mkdtempSync(join(tmpdir(), 'mutation-'));
  try {
    for (const part of ['src', 'test', 'package.json'])
      cpSync(join(root, part), join(copy, part), { recursive: true });
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    const source = readFileSync(join(copy, file), 'utf8');
    if (!source.includes(right)) throw new Error(`"${name}": ${file} has no ${right} any more`);
    writeFileSync(join(copy, file), source.replaceAll(right, wrong));
    const run = spawnSync(
      process.execPath,
      [join(copy, 'test/simulator/main.ts'), '--brief', '--until-failure', '--seeds', values.seeds],
      { encoding: 'utf8' },
    );
    const caught = /seed (\d+) breaks rule (\d)/.exec(run.stdout);
    if (caught === null && run.status !== 0) throw new Error(run.stderr);
    return caught === null ? undefined : { seed: Number(caught[1]), rule: Number(caught[2]) };
  } finally {
    rmSync(copy, { recursive: true });
  }
}

console.log('| mutation | in | breaks rule | caught by rule | after seeds |\n|-|-|-|-|-|');
for (const mutation of mutations) {
  const caught = firstToCatch(mutation);
  if (caught === undefined) process.exitCode = 1;
  const found = caught === undefined ? 'not caught | –' : `${caught.rule} | ${caught.seed + 1}`;
  console.log(`| ${mutation.name} | \`${mutation.file}\` | ${mutation.rule} | ${found} |`);
}
