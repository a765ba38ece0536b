import type { Side } from '../model/access.ts';
import { nameKey, type TypedName } from '../model/holds.ts';
import { countIn } from '../model/maps.ts';
import { type Reference, reference } from '../model/resource.ts';
import { type Gate, type HeldVariant, isLacking, type PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import { referencesOf } from '../wire/references.ts';

type Contents = Pick<Gate, 'pending' | 'contentOf' | 'judgedContent' | 'isSeen'>;

/** What upstream removes is queued as long as clients need it. */
export class Needed {
  readonly #gate: Gate;
  /** By `nameKey`: of what was pending then. */
  #needed: ReadonlySet<string> = new Set();
  /** What is kept as it is, and what it refers to. */
  readonly #kept: Readonly<Record<Side | 'seen', Kept>>;
  /** The same of what is needed by that. */
  #more: ReadonlySet<Reference> = new Set();
  #pending: readonly PendingName[] | undefined;

  constructor(gate: Gate) {
    this.#gate = gate;
    const isSeen = ({ variant }: HeldVariant): boolean => gate.isSeen(variant);
    this.#kept = {
      released: new Kept(({ type, name }) => gate.contentOf(type, name, 'released')),
      canary: new Kept(({ type, name }) => gate.contentOf(type, name, 'canary')),
      /** Of what canaries have: not what those had who have left. */
      seen: new Kept(({ type, name }) => gate.contentOf(type, name, 'canary').filter(isSeen)),
    };
  }

  readonly has = ({ type, name }: TypedName): boolean => this.#needed.has(nameKey(type, name));

  /** Whether it would be needed if upstream removed it. */
  mayBe({ type, name }: TypedName): boolean {
    const one = reference(typeInfo(type).short, name);
    return this.#kept.released.refersTo(one) || this.#kept.canary.refersTo(one) || this.#more.has(one);
  }

  /** `isJudged`: there is a rollout. `queues`: something else is queued, which stays so. */
  look(isJudged: boolean, queues: boolean): void {
    const gate = this.#gate;
    if (this.#pending === gate.pending) return;
    this.#pending = gate.pending;
    const { kept = [], rest = [] } = isJudged
      ? Object.groupBy(gate.pending, (one) => (isKept(one) ? 'kept' : 'rest'))
      : {};
    const more = new Set<Reference>();
    const neededBy = (one: Kept): ReadonlySet<string> => {
      one.look(kept);
      return neededIn(gate, one, kept.length === 0 ? [] : rest, more);
    };
    const { released, canary, seen } = this.#kept;
    const bySeen = neededBy(seen);
    this.#needed = neededBy(released).union(neededBy(canary));
    this.#more = more;
    // What canaries have refers to it again: they went back to what everybody has.
    const isMissed = (one: PendingName): boolean => bySeen.has(one.key) && hasLost(gate, one, 'canary');
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

/** What the names that are discarded or frozen refer to, as a column has them. Of thousands few change at a time. */
class Kept {
  readonly #contentOf: (name: TypedName) => readonly HeldVariant[];
  /** By `nameKey`. */
  readonly #of = new Map<
    string,
    { readonly name: PendingName; readonly references: ReadonlySet<Reference> }
  >();
  readonly #counts = new Map<Reference, number>();

  constructor(contentOf: (name: TypedName) => readonly HeldVariant[]) {
    this.#contentOf = contentOf;
  }

  refersTo(one: Reference): boolean {
    return this.#counts.has(one);
  }

  /** A name whose content is another is another object. */
  look(names: readonly PendingName[]): void {
    for (const name of names) {
      const known = this.#of.get(name.key);
      if (known?.name === name) continue;
      if (known !== undefined) this.#count(known.references, -1);
      const references = referencesIn(this.#contentOf(name));
      this.#of.set(name.key, { name, references });
      this.#count(references, 1);
    }
    if (this.#of.size === names.length) return;
    const keys = new Set(names.map(({ key }) => key));
    for (const [key, { references }] of this.#of) {
      if (keys.has(key)) continue;
      this.#of.delete(key);
      this.#count(references, -1);
    }
  }

  #count(references: ReadonlySet<Reference>, more: number): void {
    for (const one of references) countIn(this.#counts, one, more);
  }
}

const isKept = ({ masked }: PendingName): boolean => masked !== undefined && masked !== 'queued';

/**
 * What upstream removes, and what a side needs: what it has of something that is discarded or frozen refers to it. A
 * control plane that moves a route removes the old cluster once the relay has accepted the new route, and so does not
 * know that nobody has it. By `nameKey`. `rest`: what else is pending. `more`: what that refers to is added to these.
 */
function neededIn(
  gate: Contents,
  kept: Kept,
  rest: readonly PendingName[],
  more: Set<Reference>,
): ReadonlySet<string> {
  const needed = new Set<string>();
  const left = new Map(rest.map((one) => [reference(typeInfo(one.type).short, one.name), one]));
  let references: Iterable<Reference> = [...left.keys()].filter((one) => kept.refersTo(one));
  for (;;) {
    const added: PendingName[] = [];
    for (const one of references) {
      const name = left.get(one);
      left.delete(one);
      if (name !== undefined && isRemoved(gate, name)) added.push(name);
    }
    if (added.length === 0) return needed;
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
