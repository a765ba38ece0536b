import type { Operation } from '../admin/operations.ts';
import { fail, ok, type Result } from '../model/result.ts';
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
  readonly log: Log;
}

/** What operators do to changes: done at once, or refused whole, and written to the log with who and why. */
export function operate(
  operation: Operation,
  { rollout, upstreams, log }: RolloutOperationsOptions,
): Result<number, GrpcStatus> {
  const { verb, type, upstream, reason, operator } = operation;
  if (upstream !== undefined && !upstreams().includes(upstream)) {
    const message = `there is no upstream ${JSON.stringify(upstream)}: accepted are ${upstreams().join(', ')}`;
    return fail({ code: Code.NOT_FOUND, message });
  }
  const result = run(operation, rollout);
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

function run({ verb, type, upstream, reason }: Operation, rollout: Rollout): Result<number> {
  const filter = { type, upstream };
  switch (verb) {
    case 'freeze': {
      const frozen = rollout.freeze(filter, reason);
      return frozen.ok ? ok(0) : frozen;
    }
    case 'unfreeze': {
      const ended = rollout.unfreeze(filter);
      return ended.ok ? ok(rollout.report().pending.length) : ended;
    }
    case 'release':
      return rollout.release(filter);
    case 'discard':
      return rollout.discard(filter);
    default:
      return verb satisfies never;
  }
}
