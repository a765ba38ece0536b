import type { Side } from '../model/access.ts';
import { nameKey, type TypedName } from '../model/holds.ts';
import { type Reference, reference } from '../model/resource.ts';
import { type Gate, isHeldByWildcard, type PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import { referencesOf } from '../wire/references.ts';

type Contents = Pick<Gate, 'pending' | 'contentOf'>;

/** What upstream removes is queued as long as clients need it. */
export class Needed {
  readonly #gate: Gate;
  /** By `nameKey`: of what was pending then. */
  #needed: ReadonlySet<string> = new Set();
  #pending: readonly PendingName[] | undefined;

  constructor(gate: Gate) {
    this.#gate = gate;
  }

  readonly has = ({ type, name }: TypedName): boolean => this.#needed.has(nameKey(type, name));

  /** `isJudged`: there is a rollout. `queues`: something else is queued, which stays so. */
  look(isJudged: boolean, queues: boolean): void {
    const gate = this.#gate;
    if (this.#pending === gate.pending) return;
    this.#pending = gate.pending;
    const neededBy = (side: Side): ReadonlySet<string> => (isJudged ? neededIn(gate, side) : new Set());
    const byCanaries = neededBy('canary');
    this.#needed = neededBy('released').union(byCanaries);
    // What canaries have refers to it again: they went back to what everybody has.
    const isMissed = (one: PendingName): boolean => byCanaries.has(one.key) && isLacking(gate, one, 'canary');
    const missed = new Set(gate.pending.filter(isMissed).map(({ key }) => key));
    const isWrong = ({ key, masked }: PendingName): boolean =>
      this.#needed.has(key) ? masked === undefined || missed.has(key) : masked === 'queued' && !queues;
    if (!gate.pending.some(isWrong)) return;
    gate.queue(this.has, ({ type, name }) => missed.has(nameKey(type, name)));
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
 * know that nobody has it. By `nameKey`.
 */
function neededIn(gate: Contents, side: Side): ReadonlySet<string> {
  const isKept = ({ masked }: PendingName): boolean => masked !== undefined && masked !== 'queued';
  const kept = gate.pending.filter(isKept);
  const needed = new Set<string>();
  let left = kept.length === 0 ? [] : gate.pending.filter((one) => !isKept(one));
  // What is needed needs something itself. It is there as everybody has it.
  let references = referencesOfAll(gate, kept, side);
  while (references.size > 0 && left.length > 0) {
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
  isLacking(gate, one, one.masked === undefined ? 'canary' : 'said');

/** Of what everybody has: some of it or all, or only wildcards do not show it any more. */
function isLacking(gate: Contents, { type, name }: PendingName, column: 'said' | 'canary'): boolean {
  const there = new Map(
    gate.contentOf(type, name, column).map((one) => [one.variant.constraints.key, isHeldByWildcard(one)]),
  );
  return gate.contentOf(type, name, 'released').some((one) => {
    const isShown = there.get(one.variant.constraints.key);
    return isShown === undefined || (isHeldByWildcard(one) && !isShown);
  });
}

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
