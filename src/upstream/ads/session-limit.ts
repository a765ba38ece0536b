import { type Constraints, stampConstraints } from '../../model/constraints.ts';
import type { Parameters } from '../../model/parameters.ts';
import { type Holder, type Interest, type Transaction, transaction } from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import { encodeStatus } from '../../wire/responses.ts';

interface LastRefused {
  readonly keys: readonly string[];
  readonly parameters: Parameters;
  readonly constraints: Constraints;
}

const code = Code.RESOURCE_EXHAUSTED;

/** The refusal of interests when all sessions are in use (limits.max_upstream_sessions). */
export class SessionLimit {
  readonly message: string;
  /** Encoded once for all refusals. */
  readonly #status: Uint8Array;
  #last: LastRefused | undefined;

  constructor(upstream: string, maxSessions: number) {
    this.message = `upstream ${upstream}: all ${maxSessions} sessions (limits.max_upstream_sessions) are in use by other parameter sets. Raise the limit, or list what clients may say in parameters[].values`;
    this.#status = encodeStatus(code, this.message);
  }

  /** A resource error for the interest. Without it, this would look like a control plane that has not answered yet. */
  refusal(
    { type, selector }: Interest,
    holder: Holder,
    keys: readonly string[],
    parameters: Parameters,
  ): Transaction {
    const constraints = this.#constraintsOf(keys, parameters);
    const { message } = this;
    const error = { name: selector, constraints, code, message, status: this.#status };
    return transaction({ holder, type, resourceErrors: [error] });
  }

  /** Thousands of names in a row are refused for the same parameter set. */
  #constraintsOf(keys: readonly string[], parameters: Parameters): Constraints {
    if (this.#last?.keys === keys && this.#last.parameters === parameters) return this.#last.constraints;
    const constraints = stampConstraints(keys, parameters);
    this.#last = { keys, parameters, constraints };
    return constraints;
  }
}
