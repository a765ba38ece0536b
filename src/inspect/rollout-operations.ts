import type { Operation } from '../admin/operations.ts';
import type { TypeUrl } from '../model/brand.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { unknownWord } from '../model/suggest.ts';
import { typeInfo } from '../model/types.ts';
import type { Log } from '../observe/log.ts';
import type { Rollout } from '../rollout/rollout.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';

const done: Readonly<Record<Operation['verb'], string>> = {
  freeze: 'an operator has frozen changes',
  unfreeze: 'an operator has ended a freeze',
  release: 'an operator has released changes',
  discard: 'an operator has discarded changes',
};

export interface RolloutOperationsOptions {
  readonly rollout: Rollout;
  readonly upstreams: () => readonly string[];
  /** Removes what max_removal_percent holds back of an upstream: how many variants; undefined: there is no such upstream. */
  readonly releaseRemovals: (upstream: string, type: TypeUrl | undefined) => number | undefined;
  readonly log: Log;
}

/** What operators do to changes: done at once, or refused whole, and written to the log with who and why. */
export function operate(operation: Operation, options: RolloutOperationsOptions): Result<number, GrpcStatus> {
  const { upstreams, log } = options;
  const { verb, type, upstream, reason, operator } = operation;
  if (upstream !== undefined && !upstreams().includes(upstream)) {
    const message = unknownWord('upstream', upstream, upstreams());
    return fail({ code: Code.NOT_FOUND, message });
  }
  const result = run(operation, options);
  const said = {
    who: operator,
    what: verb,
    type: type === undefined ? 'all' : typeInfo(type).short,
    upstream: upstream ?? 'all',
    reason,
  };
  if (!result.ok) {
    log.warn('an operation on changes was refused', { ...said, error: result.error });
    return fail({ code: Code.FAILED_PRECONDITION, message: result.error });
  }
  log.info(done[verb], { ...said, names: result.value });
  return result;
}

function run(operation: Operation, options: RolloutOperationsOptions): Result<number> {
  const { rollout } = options;
  const { verb, type, upstream, operator, reason } = operation;
  const filter = { type, upstream };
  switch (verb) {
    case 'freeze': {
      const frozen = rollout.freeze(filter, { operator, reason });
      return frozen.ok ? ok(0) : frozen;
    }
    case 'unfreeze': {
      const ended = rollout.unfreeze(filter);
      return ended.ok ? ok(rollout.report().pending.length) : ended;
    }
    case 'release':
      return release(operation, options);
    case 'discard':
      return rollout.discard(filter, reason);
    default:
      return verb satisfies never;
  }
}

/** What waits for canaries, and what is held back because it removes too much. The error: neither waits. */
function release(
  { type, upstream }: Operation,
  { rollout, upstreams, releaseRemovals }: RolloutOperationsOptions,
): Result<number> {
  const released = rollout.release({ type, upstream });
  const removed = upstreams()
    .filter((name) => upstream === undefined || name === upstream)
    .reduce((sum, name) => sum + (releaseRemovals(name, type) ?? 0), 0);
  return removed === 0 ? released : ok(removed + (released.ok ? released.value : 0));
}
