import type { CanaryStream, Standing } from './fleet.ts';

type Rejected = Extract<Standing, { readonly kind: 'rejected' }>;

/**
 * What canaries reject of what waits. A rejection lasts until its stream accepts what it rejected, or upstream says
 * something else there. That the stream ends, unsubscribes, or is no canary any more does not end it: the next canary
 * of the class would be shown what is known to be bad.
 */
export class Rejections {
  readonly #live = new Map<CanaryStream['stream'], Rejected>();
  /** Of streams that have ended, or do not subscribe any more. */
  #left: readonly Rejected[] = [];

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    this.#left = this.#left.filter((one) => one.names.isDisjointFrom(names));
    for (const [stream, one] of this.#live) if (!one.names.isDisjointFrom(names)) this.#live.delete(stream);
  }

  /** `waiting`: the names that wait. */
  observe(canaries: readonly CanaryStream[], waiting: ReadonlySet<string>): void {
    const seen = new Map(canaries.map((one) => [one.stream, one]));
    for (const [stream, rejected] of this.#live) {
      if (rejected.names.isDisjointFrom(waiting)) continue;
      const now = seen.get(stream);
      if (now === undefined || !subscribesTo(now, rejected.names)) this.#leave(stream, rejected);
      else if (now.standing.kind === 'accepted') this.#live.delete(stream);
    }
    for (const { stream, standing } of canaries)
      if (standing.kind === 'rejected' && standing.isFinal) this.#live.set(stream, standing);
  }

  ended(stream: CanaryStream['stream'], standing: Standing): void {
    if (standing.kind === 'rejected' && standing.isFinal) this.#leave(stream, standing);
  }

  /** Why what waits is rejected; undefined: it is not. */
  reason(waiting: ReadonlySet<string>): string | undefined {
    return [...this.#live.values(), ...this.#left].find(({ names }) => !names.isDisjointFrom(waiting))
      ?.reason;
  }

  /** A client that comes and goes adds nothing. */
  #leave(stream: CanaryStream['stream'], rejected: Rejected): void {
    this.#live.delete(stream);
    if (!this.#left.some(({ names }) => rejected.names.isSubsetOf(names)))
      this.#left = [...this.#left, rejected];
  }
}

function subscribesTo(stream: CanaryStream, names: ReadonlySet<string>): boolean {
  return names.values().every((name) => stream.names.some((subscribed) => subscribed.has(name)));
}
