import { nameKey, type TypedName } from '../model/holds.ts';
import { type Reference, reference } from '../model/resource.ts';
import type { Gate, PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import { referencesOf } from '../wire/references.ts';

type Contents = Pick<Gate, 'pending' | 'contentOf'>;

/** What upstream removes is queued as long as everybody needs it. */
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
    this.#needed = isJudged ? neededIn(gate) : new Set();
    const isWrong = ({ key, masked }: PendingName): boolean =>
      this.#needed.has(key) ? masked === undefined : masked === 'queued' && !queues;
    if (!gate.pending.some(isWrong)) return;
    gate.queue(this.has);
    if (!queues) gate.unqueue((name) => !this.has(name));
  }

  /** Whether something is judged is another now. */
  reload(): void {
    this.#pending = undefined;
  }
}

/**
 * What upstream removes, and what everybody needs: what they have of something that is discarded or frozen refers to
 * it. A control plane that moves a route removes the old cluster once the relay has accepted the new route, and so does
 * not know that nobody has it. By `nameKey`.
 */
function neededIn(gate: Contents): ReadonlySet<string> {
  const isKept = ({ masked }: PendingName): boolean => masked !== undefined && masked !== 'queued';
  const kept = gate.pending.filter(isKept);
  const needed = new Set<string>();
  let left = kept.length === 0 ? [] : gate.pending.filter((one) => !isKept(one));
  // What is needed needs something itself.
  for (let added = kept; added.length > 0 && left.length > 0; ) {
    const references = referencesOfReleased(gate, added);
    const isReferredTo = ({ type, name }: PendingName): boolean =>
      references.has(reference(typeInfo(type).short, name));
    added = left.filter((one) => isReferredTo(one) && isRemoved(gate, one));
    left = left.filter((one) => !isReferredTo(one));
    for (const { key } of added) needed.add(key);
  }
  return needed;
}

/** Of some clients, or of all. */
function isRemoved(gate: Contents, { type, name, removed }: PendingName): boolean {
  if (removed) return true;
  const said = new Set(gate.contentOf(type, name, 'said').map(({ variant }) => variant.constraints.key));
  return gate.contentOf(type, name, 'released').some(({ variant }) => !said.has(variant.constraints.key));
}

function referencesOfReleased(gate: Contents, names: readonly PendingName[]): ReadonlySet<Reference> {
  const all = new Set<Reference>();
  for (const { type, name } of names)
    for (const { variant } of gate.contentOf(type, name, 'released'))
      for (const one of referencesOf(variant)) all.add(one);
  return all;
}
