import { parseArgs } from 'node:util';
import { type Mutation, runMutated } from '../support/mutation.ts';

interface Wrong extends Mutation {
  /** The rule that it breaks. */
  readonly rule: number;
}

export const mutations: readonly Wrong[] = [
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
    right: '    this.shared.clear();',
    wrong: '',
  },
  {
    name: 'what upstream has not answered yet is taken to be absent',
    rule: 2,
    file: 'src/cache/store.ts',
    right: "?.answer === undefined ? 'unknown' : 'absent'",
    wrong: "?.answer === undefined ? 'absent' : 'absent'",
  },
  {
    name: 'the first response after a reconnect replaces all that was held',
    rule: 2,
    file: 'src/upstream/ads/stream-machine.ts',
    right: '  connect(resumed: boolean): void {',
    wrong:
      '  connect(resumed: boolean): void {\n    for (const state of this.#types.values()) this.#stream.applyPart(state, { complete: true });',
  },
  {
    name: 'a swap of variants leaves the one before with the client',
    rule: 3,
    file: 'src/views/delta-response.ts',
    right: 'if (isVariant(lastSent)) content.replace(item, lastSent, now);',
    wrong: '',
  },
  {
    name: 'a wildcard does not see what is new',
    rule: 4,
    file: 'src/views/view.ts',
    right: '    this.#own.set(item.id, item);\n    this.#record(item, commit);',
    wrong: '    this.#own.set(item.id, item);',
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
    right: "answer && 'restored';",
    wrong: "interest.selector === '*' ? undefined : answer && 'restored';",
  },
  {
    name: 'an answer from before a restart is taken for confirmed',
    rule: 2,
    file: 'src/cache/store.ts',
    right: "answer && 'restored';",
    wrong: "answer && 'confirmed';",
  },
  {
    name: 'what is restored goes as soon as upstream answers anything of its type',
    rule: 2,
    file: 'src/cache/update.ts',
    right: "return isOfRole && answer === 'restored';",
    wrong: 'return false;',
  },
  {
    name: 'what upstream removed is not written',
    rule: 4,
    file: 'src/cache/store.ts',
    right: '    for (const name of changed.keys()) this.#journal.resource(type, name);',
    wrong:
      '    for (const name of changed.keys()) if (this.tables.get(type)?.resources.has(name)) this.#journal.resource(type, name);',
  },
  {
    name: 'a change sends everything again',
    rule: 5,
    file: 'src/views/response-content.ts',
    right: '  if (resend) return true;',
    wrong: '  if (resend || lastSent !== undefined) return true;',
  },
  {
    name: 'what is rejected alone is sent again, for ever',
    rule: 5,
    file: 'src/views/response-content.ts',
    right: 'return parts.size < 2 ? [] : [...parts.values()];',
    wrong: 'return [...parts.values()];',
  },
  {
    name: 'removals do not wait for the other types',
    rule: 6,
    file: 'src/downstream/send-order.ts',
    right: 'defersAll = due > (type.subscription.due ? 1 : 0);',
    wrong: 'defersAll = false;',
  },
  {
    name: 'what the routes still lead to is removed',
    rule: 6,
    file: 'src/downstream/send-order.ts',
    right: 'return until > now;\n    });\n    if (sent',
    wrong: 'return false;\n    });\n    if (sent',
  },
  {
    name: 'a change of a variant does not wait',
    rule: 7,
    file: 'src/cache/update.ts',
    right: '      this.changes.touch(put.name, put.constraints, put.aliases);\n      if (entry',
    wrong:
      '      if (entry !== undefined) this.#replace(entry, variant);\n      this.changes.touch(put.name, put.constraints, put.aliases);\n      if (entry',
  },
  {
    name: 'a removal does not wait',
    rule: 7,
    file: 'src/cache/update.ts',
    right:
      '    this.changes.touch(name, entry.constraints, aliases);\n    this.table.removeHolder(entry, holder);',
    wrong:
      '    this.table.removeHolder(entry, holder);\n    if (entry.holders.length === 0) this.table.remove(cached, entry);\n    this.changes.touch(name, entry.constraints, aliases);\n    if (entry.holders.length === 0) return;',
  },
  {
    name: 'what waits is taken for what is released',
    rule: 7,
    file: 'src/cache/type-table.ts',
    right: 'if (!this.#isEqual(held.released, live)) return false;',
    wrong: 'if (this.held.size < 2 && !this.#isEqual(held.released, live)) return false;',
  },
  {
    name: 'a freeze is only for types that are gated',
    rule: 7,
    file: 'src/cache/held-transaction.ts',
    right: 'return this.#isGated || this.#isFrozen(cached);',
    wrong: 'return this.#isGated;',
  },
  {
    name: 'canaries see what changes in a freeze',
    rule: 7,
    file: 'src/cache/held-transaction.ts',
    right: "const masked = this.#isFrozen(live) ? 'frozen' : this.#queues(name) ? 'queued' : undefined;",
    wrong: "const masked = this.#queues(name) ? 'queued' : undefined;",
  },
  {
    name: 'a release is not told to the others',
    rule: 4,
    file: 'src/cache/held-names.ts',
    right: 'const of = (side: Side): Commit => (sides.includes(side) ? commit : empty);',
    wrong: "const of = (side: Side): Commit => (sides.includes(side) && side === 'canary' ? commit : empty);",
  },
  {
    name: 'a discard gives everybody what canaries rejected',
    rule: 7,
    file: 'src/cache/held-names.ts',
    right: '} else if (held.masked === undefined) table.refuse(name, held);',
    wrong: '} else if (held.masked === undefined) table.stopHolding(name);',
  },
];

/** The first seed that shows a mutation, and by which rule. */
function firstToCatch(mutation: Mutation, seeds: string): { seed: number; rule: number } | undefined {
  const args = ['--brief', '--until-failure', '--seeds', seeds];
  const run = runMutated(mutation, 'test/simulator/main.ts', args);
  const caught = /seed (\d+) breaks rule (\d)/.exec(run.stdout);
  if (caught === null && run.status !== 0) throw new Error(run.stderr);
  return caught === null ? undefined : { seed: Number(caught[1]), rule: Number(caught[2]) };
}

function main(): void {
  const { values } = parseArgs({
    options: { seeds: { type: 'string', default: '2000' }, only: { type: 'string', default: '' } },
  });
  console.log('| mutation | in | breaks rule | caught by rule | after seeds |\n|-|-|-|-|-|');
  for (const mutation of mutations.filter(({ name }) => name.includes(values.only))) {
    const caught = firstToCatch(mutation, values.seeds);
    if (caught === undefined) process.exitCode = 1;
    const found = caught === undefined ? 'not caught | –' : `${caught.rule} | ${caught.seed + 1}`;
    console.log(`| ${mutation.name} | \`${mutation.file}\` | ${mutation.rule} | ${found} |`);
  }
}

if (import.meta.main) main();
