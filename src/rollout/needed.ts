import type { TypedName } from '../model/holds.ts';
import { type Reference, reference } from '../model/resource.ts';
import type { Gate, PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import { referencesOf } from '../wire/references.ts';
import { nameKey } from './waiting.ts';

type Contents = Pick<Gate, 'pending' | 'contentOf'>;

/** What upstream removes is queued as long as everybody needs it. */
export class Needed {
  readonly #gate: Gate;
  #isNeeded: (name: TypedName) => boolean = () => false;

  constructor(gate: Gate) {
    this.#gate = gate;
  }

  readonly has = (name: TypedName): boolean => this.#isNeeded(name);

  /** `isJudged`: there is a rollout. `queues`: something else is queued, which stays so. True: what canaries see has changed. */
  look(isJudged: boolean, queues: boolean): boolean {
    const gate = this.#gate;
    this.#isNeeded = isJudged ? neededIn(gate) : () => false;
    const isWrong = (one: PendingName): boolean =>
      this.has(one) ? one.masked === undefined : one.masked === 'queued' && !queues;
    if (!Iterator.from(gate.pending).some(isWrong)) return false;
    gate.queue(this.has);
    if (!queues) gate.unqueue(this.has);
    return true;
  }
}

/**
 * What upstream removes, and what everybody needs: what they have of something that is discarded or frozen refers to
 * it. A control plane that moves a route removes the old cluster once the relay has accepted the new route, and so does
 * not know that nobody has it.
 */
function neededIn(gate: Contents): (name: TypedName) => boolean {
  const pending = [...gate.pending];
  const isKept = ({ masked }: PendingName): boolean => masked !== undefined && masked !== 'queued';
  const kept = pending.filter(isKept);
  const needed = new Set<string>();
  let left = kept.length === 0 ? [] : pending.filter((one) => !isKept(one));
  // What is needed needs something itself.
  for (let added = kept; added.length > 0 && left.length > 0; ) {
    const references = referencesOfReleased(gate, added);
    const isReferredTo = ({ type, name }: TypedName): boolean =>
      references.has(reference(typeInfo(type).short, name));
    added = left.filter((one) => isReferredTo(one) && isRemoved(gate, one));
    left = left.filter((one) => !isReferredTo(one));
    for (const { type, name } of added) needed.add(nameKey(type, name));
  }
  return ({ type, name }) => needed.has(nameKey(type, name));
}

/** Of some clients, or of all. */
function isRemoved(gate: Contents, { type, name, removed }: PendingName): boolean {
  if (removed) return true;
  const said = new Set(gate.contentOf(type, name, 'said').map(({ variant }) => variant.constraints.key));
  return gate.contentOf(type, name, 'released').some(({ variant }) => !said.has(variant.constraints.key));
}

function referencesOfReleased(gate: Contents, names: readonly TypedName[]): ReadonlySet<Reference> {
  const all = new Set<Reference>();
  for (const { type, name } of names)
    for (const { variant } of gate.contentOf(type, name, 'released'))
      for (const one of referencesOf(variant)) all.add(one);
  return all;
}
