import type { Side } from '../model/access.ts';
import { nameKey, type TypedName } from '../model/holds.ts';
import { type Reference, reference } from '../model/resource.ts';
import { type Gate, isLacking, type PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import { referencesOf } from '../wire/references.ts';

type Contents = Pick<Gate, 'pending' | 'contentOf'>;

/** What upstream removes is queued as long as clients need it. */
export class Needed {
  readonly #gate: Gate;
  /** By `nameKey`: of what was pending then. */
  #needed: ReadonlySet<string> = new Set();
  /** What would be needed if upstream removed it. */
  #references: ReadonlySet<Reference> = new Set();
  #pending: readonly PendingName[] | undefined;

  constructor(gate: Gate) {
    this.#gate = gate;
  }

  readonly has = ({ type, name }: TypedName): boolean => this.#needed.has(nameKey(type, name));

  mayBe({ type, name }: TypedName): boolean {
    return this.#references.has(reference(typeInfo(type).short, name));
  }

  /** `isJudged`: there is a rollout. `queues`: something else is queued, which stays so. */
  look(isJudged: boolean, queues: boolean): void {
    const gate = this.#gate;
    if (this.#pending === gate.pending) return;
    this.#pending = gate.pending;
    const references = new Set<Reference>();
    const neededBy = (side: Side): ReadonlySet<string> =>
      isJudged ? neededIn(gate, side, references) : new Set();
    const byCanaries = neededBy('canary');
    this.#needed = neededBy('released').union(byCanaries);
    this.#references = references;
    // What canaries have refers to it again: they went back to what everybody has.
    const isMissed = (one: PendingName): boolean => byCanaries.has(one.key) && hasLost(gate, one, 'canary');
    const missed = new Set(gate.pending.filter(isMissed).map(({ key }) => key));
    const isWrong = (one: PendingName): boolean =>
      this.#needed.has(one.key) ? isSeenRemoved(gate, one) || missed.has(one.key) : one.queued && !queues;
    const wrong = new Set(gate.pending.filter(isWrong).map(({ key }) => key));
    if (wrong.size === 0) return;
    const isWrongly = (name: TypedName): boolean =>
      this.has(name) && wrong.has(nameKey(name.type, name.name));
    gate.queue(isWrongly, ({ type, name }) => missed.has(nameKey(type, name)));
    if (!queues) gate.unqueue((name) => !this.has(name));
  }

  /** Whether something is judged is another now. */
  reload(): void {
    this.#pending = undefined;
  }
}

/**
 * What upstream removes, and what a side needs: what it has of something that is discarded or frozen refers to it. A
 * control plane that moves a route removes the old cluster once the relay has accepted the new route, and so does not
 * know that nobody has it. By `nameKey`. `all`: what else it refers to is added to these.
 */
function neededIn(gate: Contents, side: Side, all: Set<Reference>): ReadonlySet<string> {
  const isKept = ({ masked }: PendingName): boolean => masked !== undefined && masked !== 'queued';
  const kept = gate.pending.filter(isKept);
  const needed = new Set<string>();
  let left = kept.length === 0 ? [] : gate.pending.filter((one) => !isKept(one));
  // What is needed needs something itself. It is there as everybody has it.
  let references = referencesOfAll(gate, kept, side);
  while (references.size > 0) {
    for (const one of references) all.add(one);
    const isReferredTo = ({ type, name }: PendingName): boolean =>
      references.has(reference(typeInfo(type).short, name));
    const added = left.filter((one) => isReferredTo(one) && isRemoved(gate, one));
    left = left.filter((one) => !isReferredTo(one));
    for (const { key } of added) needed.add(key);
    references = referencesOfAll(gate, added, 'released');
  }
  return needed;
}

/** What is queued may have been seen by canaries, or not. */
const isRemoved = (gate: Contents, one: PendingName): boolean =>
  isSeenRemoved(gate, one) || (one.queued && hasLost(gate, one, 'said'));

const isSeenRemoved = (gate: Contents, one: PendingName): boolean =>
  one.masked === undefined && hasLost(gate, one, 'canary');

/** Of what everybody has. */
const hasLost = (gate: Contents, { type, name }: PendingName, column: 'said' | 'canary'): boolean =>
  isLacking(gate.contentOf(type, name, column), gate.contentOf(type, name, 'released'));

function referencesOfAll(
  gate: Contents,
  names: readonly PendingName[],
  column: Side,
): ReadonlySet<Reference> {
  const all = new Set<Reference>();
  for (const { type, name } of names)
    for (const { variant } of gate.contentOf(type, name, column))
      for (const one of referencesOf(variant)) all.add(one);
  return all;
}
