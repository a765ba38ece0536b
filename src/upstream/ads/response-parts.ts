import { UNCONSTRAINED } from '../../model/constraints.ts';
import { contentHash, ownBytes } from '../../model/content-hash.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { Put, ResourceError } from '../../model/transaction.ts';
import { type InTurns, ReadingPace } from '../../model/turns.ts';
import {
  type ByteRanges,
  type IncomingResource,
  readError,
  readName,
  readString,
} from '../../wire/response-reader.ts';
import {
  type AcceptanceRules,
  acceptError,
  acceptRemoval,
  acceptResource,
  type Identity,
  type SeenIdentities,
} from './accept-resource.ts';
import type { SeenVariants } from './acked-resources.ts';

export interface ReadingOptions {
  readonly rules: AcceptanceRules;
  readonly readResource: (entry: Buffer) => Result<IncomingResource>;
  readonly entriesPerTurn: number;
  /** Each body with its hash, also in a small response. */
  readonly hashed: boolean;
}

/**
 * Reads and judges the entries of one response, a part in each turn. Nothing is done with them yet. The error is the
 * reason for a NACK.
 */
export class ResponseParts {
  readonly #options: ReadingOptions;
  readonly #pace: ReadingPace;

  constructor(options: ReadingOptions) {
    this.#options = options;
    this.#pace = new ReadingPace(options.entriesPerTurn);
  }

  /** Those from `start` to before `end`. */
  *resources(entries: ByteRanges, start: number, end: number, seen: SeenVariants): InTurns<Result<Put[]>> {
    const { rules, readResource, entriesPerTurn, hashed } = this.#options;
    const isHashed = hashed || end - start > entriesPerTurn;
    const puts: Put[] = [];
    for (let index = start; index < end; index++) {
      const entry = entries.at(index);
      if (this.#pace.isTurnOver(entry.length)) yield;
      const resource = readResource(entry);
      if (!resource.ok) return fail(`resource ${index + 1} of ${entries.length}: ${resource.error}`);
      const put = acceptResource(rules, resource.value, seen);
      if (!put.ok) return put;
      puts.push(isHashed ? withPayload(put.value) : put.value);
    }
    return ok(puts);
  }

  *errors(entries: ByteRanges): InTurns<Result<ResourceError[]>> {
    const { rules } = this.#options;
    return yield* this.#each(entries, (entry) => {
      const error = readError(entry);
      return error.ok ? acceptError(rules, error.value) : error;
    });
  }

  /** `removed_resources` has no constraints. */
  *removed(entries: ByteRanges, seen: SeenIdentities): InTurns<Result<Identity[]>> {
    const { rules } = this.#options;
    return yield* this.#each(entries, (entry) => {
      const name = readString(entry);
      return name.ok
        ? acceptRemoval(rules, { name: name.value, constraints: UNCONSTRAINED.bytes }, seen)
        : name;
    });
  }

  *removedNames(entries: ByteRanges, seen: SeenIdentities): InTurns<Result<Identity[]>> {
    const { rules } = this.#options;
    return yield* this.#each(entries, (entry) => {
      const name = readName(entry);
      return name.ok ? acceptRemoval(rules, name.value, seen) : name;
    });
  }

  /** Undefined: the entry adds nothing. */
  *#each<T>(entries: ByteRanges, accept: (entry: Buffer) => Result<T | undefined>): InTurns<Result<T[]>> {
    const accepted: T[] = [];
    for (let index = 0; index < entries.length; index++) {
      const entry = entries.at(index);
      if (this.#pace.isTurnOver(entry.length)) yield;
      const one = accept(entry);
      if (!one.ok) return one;
      if (one.value !== undefined) accepted.push(one.value);
    }
    return ok(accepted);
  }
}

/** The commit cannot be divided, so what it will need is made before. */
function withPayload(put: Put): Put {
  if (put.any === undefined) return put;
  const bytes = ownBytes(put.any);
  return { ...put, any: bytes, payload: { bytes, hash: contentHash(bytes) } };
}
