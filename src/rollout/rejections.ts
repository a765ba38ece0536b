import type { Verdict } from './judge.ts';
import type { CanaryStream, Standing } from './waiting.ts';

/** So many rejections of streams that are gone are kept apart. */
const mostLeft = 100;

type Rejected = Extract<Standing, { readonly kind: 'rejected' }>;

/**
 * What canaries reject of what waits. A rejection lasts until its stream accepts what it rejected, or upstream says
 * something else there. That the stream ends, unsubscribes, or is no canary any more does not end it: the next canary
 * of the class would be shown what is known to be bad.
 */
export class Rejections {
  readonly #live = new Map<CanaryStream['stream'], Rejected>();
  /** Of streams that have ended, or do not subscribe any more. */
  #left: Rejected[] = [];
  /** The names of those that were too many. */
  #more: Rejected | undefined;
  /** Undefined: to be made anew. */
  #verdicts: readonly Verdict[] | undefined;

  /** What is rejected, the same values until something changes. */
  get verdicts(): readonly Verdict[] {
    if (this.#verdicts !== undefined) return this.#verdicts;
    const verdicts: Verdict[] = [];
    const known = new NameSets();
    for (const { reason, names } of this.#all()) {
      if (known.addUnlessWithin(names)) verdicts.push({ cause: 'rejection', reason, names });
    }
    this.#verdicts = verdicts;
    return verdicts;
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    const isOver = (one: Rejected): boolean => !one.names.isDisjointFrom(names);
    const left = this.#left.filter((one) => !isOver(one));
    if (left.length < this.#left.length) this.#verdicts = undefined;
    this.#left = left;
    // Each name counts for itself: the others were rejected apart from these.
    if (this.#more !== undefined && isOver(this.#more)) {
      const rest = this.#more.names.difference(names);
      this.#more = rest.size === 0 ? undefined : { ...this.#more, names: rest };
      this.#verdicts = undefined;
    }
    for (const [stream, one] of this.#live) if (isOver(one)) this.#forget(stream);
  }

  /** `waiting`: the names that wait. */
  observe(canaries: readonly CanaryStream[], waiting: ReadonlySet<string>): void {
    const seen = new Map(canaries.map((one) => [one.stream, one]));
    for (const [stream, rejected] of this.#live) {
      if (rejected.names.isDisjointFrom(waiting)) continue;
      const now = seen.get(stream);
      if (now === undefined || !subscribesTo(now, rejected.names)) this.#leave(stream, rejected);
      else if (now.standing.kind === 'accepted') this.#forget(stream);
    }
    for (const { stream, standing } of canaries) {
      if (standing.kind !== 'rejected' || !standing.isFinal) continue;
      const known = this.#live.get(stream);
      if (known !== undefined && isSame(known, standing)) continue;
      this.#live.set(stream, standing);
      this.#verdicts = undefined;
    }
  }

  ended(stream: CanaryStream['stream'], standing: Standing): void {
    if (standing.kind === 'rejected' && standing.isFinal) this.#leave(stream, standing);
  }

  /** Why what waits is rejected; undefined: it is not. */
  reason(waiting: ReadonlySet<string>): string | undefined {
    return this.#all().find(({ names }) => !names.isDisjointFrom(waiting))?.reason;
  }

  /** A client that comes and goes adds nothing. */
  #leave(stream: CanaryStream['stream'], rejected: Rejected): void {
    this.#forget(stream);
    if (this.#left.some(({ names }) => isWithin(rejected.names, names))) return;
    if (this.#left.length < mostLeft) this.#left.push(rejected);
    else this.#more = { ...rejected, names: rejected.names.union(this.#more?.names ?? new Set()) };
  }

  #all(): readonly Rejected[] {
    return [...this.#live.values(), ...this.#left, ...(this.#more === undefined ? [] : [this.#more])];
  }

  #forget(stream: CanaryStream['stream']): void {
    this.#live.delete(stream);
    this.#verdicts = undefined;
  }
}

/** Sets of names, found by what they have in common: thousands of clients may each reject something of their own. */
class NameSets {
  readonly #all = new Set<ReadonlySet<string>>();
  readonly #byName = new Map<string, ReadonlySet<string>[]>();

  /** False: one of those before has all of these names. */
  addUnlessWithin(names: ReadonlySet<string>): boolean {
    if (this.#all.has(names) || this.#candidates(names).some((known) => isWithin(names, known))) return false;
    this.#all.add(names);
    for (const name of names) {
      const known = this.#byName.get(name);
      if (known === undefined) this.#byName.set(name, [names]);
      else known.push(names);
    }
    return true;
  }

  /** Those with the rarest of the names. */
  #candidates(names: ReadonlySet<string>): readonly ReadonlySet<string>[] {
    let fewest: readonly ReadonlySet<string>[] | undefined;
    for (const name of names) {
      const known = this.#byName.get(name) ?? [];
      if (known.length < (fewest?.length ?? Number.POSITIVE_INFINITY)) fewest = known;
      if (known.length === 0) break;
    }
    return fewest ?? [];
  }
}

function subscribesTo(stream: CanaryStream, names: ReadonlySet<string>): boolean {
  return names.values().every((name) => stream.names.some((subscribed) => subscribed.has(name)));
}

const isWithin = (inner: ReadonlySet<string>, outer: ReadonlySet<string>): boolean =>
  inner === outer || inner.isSubsetOf(outer);

const isSame = (a: Rejected, b: Rejected): boolean =>
  a.reason === b.reason && a.names.size === b.names.size && isWithin(a.names, b.names);
