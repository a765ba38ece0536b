import type { ParametersKey, TypeUrl } from '../../model/brand.ts';
import { type Constraints, stampConstraints } from '../../model/constraints.ts';
import type { Parameters } from '../../model/parameters.ts';
import {
  type Holder,
  type Interest,
  type Selector,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import { encodeStatus } from '../../wire/responses.ts';

/** The refused interests with one parameter set. */
interface RefusedSet {
  /** The parameter set that they need a session for. */
  readonly set: ParametersKey;
  readonly interests: Map<TypeUrl, Map<Selector, Interest>>;
}

const code = Code.RESOURCE_EXHAUSTED;

/**
 * Interests that have no session, because all sessions are in use (limits.max_upstream_sessions). Clients can make them many, so each is found by a key,
 * and so are those that wait for the same session.
 */
export class RefusedInterests {
  readonly #sets = new Map<Parameters, RefusedSet>();
  /** By the parameter set that they need a session for, the longest waiting first. */
  readonly #waiting = new Map<ParametersKey, Set<Parameters>>();

  /** Why. */
  readonly message: string;
  /** The same, encoded once for all of them. */
  readonly #status: Uint8Array;
  /** The constraints of the last one: thousands of names in a row are refused for the same parameter set. */
  #last:
    | { readonly keys: readonly string[]; readonly parameters: Parameters; readonly constraints: Constraints }
    | undefined;

  constructor(upstream: string, maxSessions: number) {
    this.message = `upstream ${upstream}: all ${maxSessions} sessions (limits.max_upstream_sessions) are in use by other parameter sets. Raise the limit, or list what clients may say in parameters[].values`;
    this.#status = encodeStatus(code, this.message);
  }

  get empty(): boolean {
    return this.#sets.size === 0;
  }

  /** The parameter set that has waited for longest. */
  get first(): ParametersKey | undefined {
    return this.#waiting.keys().next().value;
  }

  /** Some wait for a session for this parameter set. */
  waits(set: ParametersKey): boolean {
    return this.#waiting.has(set);
  }

  /** `set`: what it needs a session for. */
  add(interest: Interest, set: ParametersKey): void {
    const { type, selector, parameters } = interest;
    const refused = this.#sets.get(parameters) ?? this.#create(parameters, set);
    const selectors = refused.interests.get(type) ?? new Map<Selector, Interest>();
    refused.interests.set(type, selectors);
    selectors.set(selector, interest);
  }

  has({ type, selector, parameters }: Interest): boolean {
    return this.#sets.get(parameters)?.interests.get(type)?.has(selector) === true;
  }

  /** False if it was not refused. */
  delete({ type, selector, parameters }: Interest): boolean {
    const refused = this.#sets.get(parameters);
    const selectors = refused?.interests.get(type);
    if (refused === undefined || selectors?.delete(selector) !== true) return false;
    if (selectors.size === 0) refused.interests.delete(type);
    if (refused.interests.size === 0) this.#drop(parameters, refused);
    return true;
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

  /** Takes out at most so many of the interests that wait for this parameter set. */
  take(set: ParametersKey, most: number): readonly Interest[] {
    const taken = this.#of(set).take(most).toArray();
    for (const interest of taken) this.delete(interest);
    return taken;
  }

  /** Takes out all interests. */
  takeAll(): readonly Interest[] {
    const all = this.#waiting
      .keys()
      .flatMap((set) => this.#of(set))
      .toArray();
    this.#sets.clear();
    this.#waiting.clear();
    return all;
  }

  /** The distinct parameters, at most so many. */
  parameters(most: number): readonly ParametersKey[] {
    return this.#sets
      .keys()
      .map(({ key }) => key)
      .take(most)
      .toArray();
  }

  #create(parameters: Parameters, set: ParametersKey): RefusedSet {
    const refused: RefusedSet = { set, interests: new Map() };
    this.#sets.set(parameters, refused);
    const waiting = this.#waiting.get(set) ?? new Set<Parameters>();
    this.#waiting.set(set, waiting);
    waiting.add(parameters);
    return refused;
  }

  #drop(parameters: Parameters, { set }: RefusedSet): void {
    this.#sets.delete(parameters);
    const waiting = this.#waiting.get(set);
    waiting?.delete(parameters);
    if (waiting?.size === 0) this.#waiting.delete(set);
  }

  *#of(set: ParametersKey): Generator<Interest, undefined> {
    for (const parameters of this.#waiting.get(set) ?? []) {
      for (const selectors of this.#sets.get(parameters)?.interests.values() ?? []) yield* selectors.values();
    }
  }
}
