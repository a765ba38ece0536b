import type { ParametersKey } from '../../model/brand.ts';
import { type Constraints, stampConstraints } from '../../model/constraints.ts';
import type { Parameters } from '../../model/parameters.ts';
import { type Holder, type Interest, type Transaction, transaction } from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import { encodeStatus } from '../../wire/responses.ts';

const code = Code.RESOURCE_EXHAUSTED;

/**
 * Interests that have no session, because all sessions are in use (limits.max_upstream_sessions). Clients can make them
 * many, so each is found by a key, and so are those that wait for the same session. `set`: the parameter set that they
 * need a session for.
 */
export class RefusedInterests {
  /** Why. */
  readonly message: string;
  /** The same, encoded once for all of them. */
  readonly #status: Uint8Array;
  /** By set, the longest waiting first, and then by `keyOf`. */
  readonly #waiting = new Map<ParametersKey, Map<string, Interest>>();
  /** How many have these parameters. */
  readonly #counts = new Map<ParametersKey, number>();
  /** The constraints of the last one: thousands of names in a row are refused for the same parameter set. */
  #last:
    | { readonly keys: readonly string[]; readonly parameters: Parameters; readonly constraints: Constraints }
    | undefined;

  constructor(upstream: string, maxSessions: number) {
    this.message = `upstream ${upstream}: all ${maxSessions} sessions (limits.max_upstream_sessions) are in use by other parameter sets. Raise the limit, or list what clients may say in parameters[].values`;
    this.#status = encodeStatus(code, this.message);
  }

  get empty(): boolean {
    return this.#waiting.size === 0;
  }

  /** The parameter set that has waited for longest. */
  get first(): ParametersKey | undefined {
    return this.#waiting.keys().next().value;
  }

  /** Some wait for a session for this parameter set. */
  waits(set: ParametersKey): boolean {
    return this.#waiting.has(set);
  }

  add(interest: Interest, set: ParametersKey): void {
    const waiting = this.#waiting.get(set) ?? new Map<string, Interest>();
    this.#waiting.set(set, waiting);
    waiting.set(keyOf(interest), interest);
    const { key } = interest.parameters;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  has(interest: Interest, set: ParametersKey): boolean {
    return this.#waiting.get(set)?.has(keyOf(interest)) === true;
  }

  /** False if it was not refused. */
  delete(interest: Interest, set: ParametersKey): boolean {
    const waiting = this.#waiting.get(set);
    if (waiting?.delete(keyOf(interest)) !== true) return false;
    if (waiting.size === 0) this.#waiting.delete(set);
    const { key } = interest.parameters;
    const left = (this.#counts.get(key) ?? 0) - 1;
    if (left > 0) this.#counts.set(key, left);
    else this.#counts.delete(key);
    return true;
  }

  /** Takes out at most so many of the interests that wait for this parameter set. */
  take(set: ParametersKey, most: number): readonly Interest[] {
    const taken = [...(this.#waiting.get(set)?.values().take(most) ?? [])];
    for (const interest of taken) this.delete(interest, set);
    return taken;
  }

  /** Takes out all interests. */
  takeAll(): readonly Interest[] {
    const all = [...this.#waiting.values().flatMap((waiting) => waiting.values())];
    this.#waiting.clear();
    this.#counts.clear();
    return all;
  }

  /** The distinct parameters, at most so many. */
  parameters(most: number): readonly ParametersKey[] {
    return [...this.#counts.keys().take(most)];
  }

  /** A resource error for the interest. Without it, this would look like a control plane that has not answered yet. */
  answer(
    { type, selector }: Interest,
    holder: Holder,
    keys: readonly string[],
    parameters: Parameters,
  ): Transaction {
    if (this.#last?.keys !== keys || this.#last.parameters !== parameters)
      this.#last = { keys, parameters, constraints: stampConstraints(keys, parameters) };
    const { constraints } = this.#last;
    const error = { name: selector, constraints, code, message: this.message, status: this.#status };
    return transaction({ holder, type, resourceErrors: [error] });
  }
}

const keyOf = ({ type, selector, parameters }: Interest): string => `${parameters.id} ${type} ${selector}`;
