import { nameKey, type TypedName } from '../model/holds.ts';
import { onceFor } from '../model/maps.ts';
import { type Reference, reference } from '../model/resource.ts';
import { type Gate, type HeldVariant, isLacking, type PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import { referencesOf } from '../wire/references.ts';
import { keysOf } from './waiting.ts';

type Contents = Pick<Gate, 'pending' | 'contentOf' | 'judgedContent' | 'isSeen'>;

/** What upstream removes is queued as long as clients need it. */
export class Needed {
  readonly #gate: Gate;
  /** By `nameKey`: of what was pending then. */
  #needed: ReadonlySet<string> = new Set();
  /** What is kept as it is refers to these, and what is needed by that. */
  #references: ReadonlySet<Reference> = new Set();
  /** As either cohort has it. A name whose content is another is another object: of thousands few change at a time. */
  readonly #referencesOf = onceFor(({ type, name }: PendingName) =>
    referencesIn(
      (['released', 'canary'] as const).flatMap((cohort) => this.#gate.contentOf(type, name, cohort)),
    ),
  );
  #pending: readonly PendingName[] | undefined;
  /** Canaries have lost something that those may need who have left: it comes back with them. */
  dependsOnClients = false;

  constructor(gate: Gate) {
    this.#gate = gate;
  }

  readonly has = ({ type, name }: TypedName): boolean => this.#needed.has(nameKey(type, name));

  /** Whether it would be needed if upstream removed it. */
  mayBe({ type, name }: TypedName): boolean {
    return this.#references.has(reference(typeInfo(type).short, name));
  }

  /** `isJudged`: there is a rollout. `queues`: something else is queued, which stays so. */
  look(isJudged: boolean, queues: boolean): void {
    const gate = this.#gate;
    if (this.#pending === gate.pending && !this.dependsOnClients) return;
    this.#pending = gate.pending;
    const { kept = [], rest = [] } = isJudged
      ? Object.groupBy(gate.pending, (one) => (isKept(one) ? 'kept' : 'rest'))
      : {};
    const references = new Set<Reference>();
    for (const one of kept) for (const other of this.#referencesOf(one)) references.add(other);
    const { needed, more } = neededIn(gate, references, kept.length === 0 ? [] : rest);
    this.#needed = needed;
    this.#references = references.union(more);
    const missed = this.#missed(kept, rest);
    const isWrong = (one: PendingName): boolean =>
      needed.has(one.key) ? isSeenRemoved(gate, one) || missed.has(one.key) : one.queued && !queues;
    const wrong = new Set(gate.pending.filter(isWrong).map(({ key }) => key));
    if (wrong.size === 0) return;
    const isWrongly = (name: TypedName): boolean =>
      this.has(name) && wrong.has(nameKey(name.type, name.name));
    gate.queue(isWrongly, ({ type, name }) => missed.has(nameKey(type, name)));
    if (!queues) gate.unqueue((name) => !this.has(name));
  }

  /** What canaries have that are there refers to it again: they went back to what everybody has. By `nameKey`. */
  #missed(kept: readonly PendingName[], rest: readonly PendingName[]): ReadonlySet<string> {
    const gate = this.#gate;
    const lost = rest.filter((one) => this.#needed.has(one.key) && hasLost(gate, one, 'canary'));
    const shown =
      lost.length === 0 ? [] : kept.flatMap((one) => gate.contentOf(one.type, one.name, 'canary'));
    const seen = shown.filter(({ variant }) => gate.isSeen(variant));
    this.dependsOnClients = seen.length < shown.length;
    return neededIn(gate, referencesIn(seen), rest).needed.intersection(keysOf(lost));
  }

  /** Whether something is judged is another now. */
  reload(): void {
    this.#pending = undefined;
  }
}

const isKept = ({ masked }: PendingName): boolean => masked !== undefined && masked !== 'queued';

/**
 * What upstream removes, and what a cohort needs: what it has of something that is discarded or frozen refers to it. A
 * control plane that moves a route removes the old cluster once the relay has accepted the new route, and so does not
 * know that nobody has it. By `nameKey`. `rest`: what else is pending. `more`: what that refers to itself.
 */
function neededIn(
  gate: Contents,
  kept: Pick<ReadonlySet<Reference>, 'has'>,
  rest: readonly PendingName[],
): { readonly needed: ReadonlySet<string>; readonly more: ReadonlySet<Reference> } {
  const needed = new Set<string>();
  const more = new Set<Reference>();
  const left = new Map(rest.map((one) => [reference(typeInfo(one.type).short, one.name), one]));
  let references: Iterable<Reference> = [...left.keys()].filter((one) => kept.has(one));
  for (;;) {
    const added: PendingName[] = [];
    for (const one of references) {
      const name = left.get(one);
      left.delete(one);
      if (name !== undefined && isRemoved(gate, name)) added.push(name);
    }
    if (added.length === 0) return { needed, more };
    for (const { key } of added) needed.add(key);
    // What is needed needs something itself. It is there as everybody has it.
    references = referencesIn(added.flatMap(({ type, name }) => gate.contentOf(type, name, 'released')));
    for (const one of references) more.add(one);
  }
}

/** What is queued may have been seen by canaries, or not. */
const isRemoved = (gate: Contents, one: PendingName): boolean =>
  isSeenRemoved(gate, one) || (one.queued && hasLost(gate, one, 'said'));

const isSeenRemoved = (gate: Contents, one: PendingName): boolean =>
  one.masked === undefined && hasLost(gate, one, 'canary');

/** Of what everybody has. That clients have left, or that a wildcard has ended, is no loss. */
const hasLost = (gate: Contents, { type, name }: PendingName, column: 'said' | 'canary'): boolean =>
  isLacking(gate.judgedContent(type, name, column), gate.judgedContent(type, name, 'released'));

function referencesIn(content: readonly HeldVariant[]): ReadonlySet<Reference> {
  const all = new Set<Reference>();
  for (const { variant } of content) for (const one of referencesOf(variant)) all.add(one);
  return all;
}
