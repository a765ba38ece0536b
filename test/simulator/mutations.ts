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
    file: 'src/upstream/ads/subscribed-type.ts',
    right: '    acked.startOver();',
    wrong: '    acked.startOver();\n    this.#apply({ complete: true });',
  },
  {
    name: 'a swap of variants leaves the one before with the client',
    rule: 3,
    file: 'src/views/composition.ts',
    right: 'if (isVariant(lastSent)) this.#replace(item, lastSent, now);',
    wrong: 'if (isVariant(lastSent)) void lastSent;',
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
    file: 'src/views/views.ts',
    right: '        next.value.wake();',
    wrong: '        if (count !== 2) next.value.wake();',
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
    right: "return waits || (isOfRole && (answer === 'restored' || staysOpen));",
    wrong: 'return false;',
  },
  {
    name: 'no silence says that a name is gone that was held before',
    rule: 4,
    file: 'src/upstream/ads/delta-type.ts',
    right: 'if (!this.stream.controlPlaneResponded && this.holdsUnconfirmed(subscription)) return',
    wrong: 'if (this.holdsUnconfirmed(subscription)) return',
  },
  {
    name: 'over SotW only the first of a name counts',
    rule: 4,
    file: 'src/upstream/ads/sotw-type.ts',
    right: "        const version = put.version === '' ? ofAll : put.version;",
    wrong:
      "        if (acked.get(name, constraints.key)?.confirmed === true) continue;\n        const version = put.version === '' ? ofAll : put.version;",
  },
  {
    name: 'clients are not asked for reports',
    rule: 10,
    file: 'src/load/load-server.ts',
    right: '    if (asked === undefined || this.#told',
    wrong: '    if (asked !== undefined) return;\n    if (asked === undefined || this.#told',
  },
  {
    name: 'what upstream removed is not written',
    rule: 4,
    file: 'src/cache/store.ts',
    right: '    for (const name of changed.keys()) this.tables.journal.resource(type, name);',
    wrong:
      '    for (const name of changed.keys()) if (this.tables.get(type)?.resources.has(name)) this.tables.journal.resource(type, name);',
  },
  {
    name: 'a change sends everything again',
    rule: 5,
    file: 'src/views/changes.ts',
    right: '  if (resend) return true;',
    wrong: '  if (resend || lastSent !== undefined) return true;',
  },
  {
    name: 'what is rejected alone is sent again, for ever',
    rule: 5,
    file: 'src/views/changes.ts',
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
    right: 'if (until > now) return keep(until);',
    wrong: 'if (until > now) return false;',
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
    right: 'if (!this.#isEqual(held.released, live, last)) return false;',
    wrong: 'if (this.held.size < 2 && !this.#isEqual(held.released, live, last)) return false;',
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
    right: 'const of = (cohort: Cohort): Commit => (cohorts.includes(cohort) ? commit : empty);',
    wrong:
      "const of = (cohort: Cohort): Commit => (cohorts.includes(cohort) && cohort === 'canary' ? commit : empty);",
  },
  {
    name: 'a discard gives everybody what canaries rejected',
    rule: 7,
    file: 'src/cache/held-names.ts',
    right: '} else if (held.masked === undefined) table.refuse(name, held);',
    wrong: '} else if (held.masked === undefined) table.stopHolding(name);',
  },
  {
    name: 'the first wave has the clients of all waves',
    rule: 8,
    file: 'src/releases/canaries.ts',
    right: 'waves.slice(0, reached ?? 1).some(',
    wrong: 'waves.some(',
  },
  {
    name: 'what comes while a later wave is on is not queued',
    rule: 8,
    file: 'src/releases/changes.ts',
    right: 'return own?.isOpen !== true;',
    wrong: "return own?.isOpen !== true && key === '';",
  },
  {
    name: 'a removal that is judged ends where the name comes again',
    rule: 8,
    file: 'src/cache/held-transaction.ts',
    right: 'if (isAnother(held.released',
    wrong: 'if (column === held.released && isAnother(held.released',
  },
  {
    name: 'the last wave does not end',
    rule: 8,
    file: 'src/releases/rollout.ts',
    right: 'this.#release(last.map(',
    wrong: 'this.#release([].map(',
  },
  {
    name: 'names never seen before wait',
    rule: 8,
    file: 'src/cache/held-transaction.ts',
    right: 'if (!isWithheld) return;',
    wrong: 'if (!this.#isGated) return;',
  },
  {
    name: 'a check that says nothing passes',
    rule: 9,
    file: 'src/releases/checks.ts',
    right: "goodSince: state === 'GOOD' ?",
    wrong: "goodSince: state !== 'BAD' ?",
  },
  {
    name: 'a check that is bad twice is no verdict',
    rule: 9,
    file: 'src/releases/checks.ts',
    right: 'verdict: isBad ? {',
    wrong: 'verdict: failures < 0 ? {',
  },
  {
    name: 'traffic finds no rise of errors',
    rule: 9,
    file: 'src/releases/traffic.ts',
    right: 'if (!isRise(compared, bounds, limit))',
    wrong: 'if (limit !== undefined)',
  },
  {
    name: 'DISCARD holds',
    rule: 9,
    file: 'src/releases/rollout.ts',
    right: "if (this.#settings?.onFailure !== 'DISCARD') return;",
    wrong: 'if (this.#settings !== undefined) return;',
  },
  {
    name: 'a discard is not told to the canaries',
    rule: 9,
    file: 'src/cache/held-names.ts',
    right: "this.#change(filter, ['canary'], discard, {",
    wrong: 'this.#change(filter, [], discard, {',
  },
  {
    name: 'a restart forgets what was discarded',
    rule: 9,
    file: 'src/releases/verdicts.ts',
    right: 'this.#discards = new Map(discards.map(',
    wrong: 'this.#discards = new Map(discards.slice(discards.length).map(',
  },
  {
    name: 'sums that were not handed over are lost',
    rule: 10,
    file: 'src/load/load-server.ts',
    right: '    this.#taken?.giveBack();',
    wrong: '',
  },
  {
    name: 'sums are handed over twice',
    rule: 10,
    file: 'src/load/sums.ts',
    right: "    if (field.kind === 'counter') rows.numbers[rows.placeOf(row, field.slot)] = 0;",
    wrong: '',
  },
  {
    name: 'what is open at a client that has left stays open',
    rule: 10,
    file: 'src/load/sums.ts',
    right: 'forget(this.#rows, reporter);',
    wrong: '',
  },
  {
    name: 'a session ends before its sums are handed over',
    rule: 10,
    file: 'src/load/load-server.ts',
    right: '    if (!isDone && this.instruction !== undefined) return;',
    wrong: '    if (!isDone && this.instruction === undefined) return;',
  },
];

/** The first seed that shows a mutation, and by which rule. */
function firstToCatch(mutation: Mutation, seeds: string): { seed: number; rule: number } | undefined {
  const args = ['--brief', '--until-failure', '--seeds', seeds];
  const run = runMutated(mutation, 'test/simulator/main.ts', args);
  const caught = /seed (\d+) breaks rule (\d+)/.exec(run.stdout);
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
