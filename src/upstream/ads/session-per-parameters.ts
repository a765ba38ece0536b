import type { ParametersKey } from '../../model/brand.ts';
import { internParameters, type Parameters } from '../../model/parameters.ts';
import type { Interest } from '../../model/transaction.ts';

/** No client has such a key. */
const SHARED_SESSION = internParameters([['distributary', 'shared']]);

/**
 * A stream for each parameter set, whose first response has everything for this set (ADR 30): how a worker subscribes to
 * the primary. This class says which session an interest belongs to. What follows from it is said by the session's holders,
 * by `exactParameters`, and by nothing else:
 * - a stream takes its first response for the answer to a wildcard, instead of waiting for silence;
 * - the store prefers what came with these parameters to what only matches them.
 *
 * Past max_upstream_sessions the other sets share a session, of which neither holds.
 */
export class SessionPerParameters {
  /** The parameter sets in the shared session, with the number of their interests. */
  readonly #inSharedSession = new Map<ParametersKey, number>();

  /** The parameters of the interest's session. */
  of({ parameters }: Interest): Parameters {
    return this.#inSharedSession.has(parameters.key) ? SHARED_SESSION : parameters;
  }

  /** Before the interest is subscribed. `hasPlace`: whether its parameter set has a session, or may have one. */
  join({ parameters: { key } }: Interest, hasPlace: (key: ParametersKey) => boolean): void {
    const interests = this.#inSharedSession.get(key);
    if (interests !== undefined || !hasPlace(key)) this.#inSharedSession.set(key, (interests ?? 0) + 1);
  }

  leave({ parameters: { key } }: Interest): void {
    const interests = this.#inSharedSession.get(key);
    if (interests === 1) this.#inSharedSession.delete(key);
    else if (interests !== undefined) this.#inSharedSession.set(key, interests - 1);
  }

  /** For the holders of a session; undefined: it is the shared one. */
  exactParameters(ofSession: Parameters): Parameters | undefined {
    return ofSession === SHARED_SESSION ? undefined : ofSession;
  }
}
