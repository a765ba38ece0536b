import type { Response } from '../../model/subscription.ts';
import type { WholeState } from '../../model/whole-state.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import type { Poll } from './poll.ts';

/** What a poll is answered with. */
export type PollOutcome =
  /** `version`: of what it shows. */
  | { readonly kind: 'response'; readonly response: Response; readonly version: string }
  /** The client has this version. */
  | { readonly kind: 'unchanged'; readonly version: string }
  | { readonly kind: 'refused'; readonly status: GrpcStatus };

/** How long a poll waits for what is unknown, and what it is told then. */
export interface Patience {
  readonly milliseconds: number;
  /** The client takes 304 for an answer. If not, it is sent everything each time. */
  readonly unchanged: boolean;
  /** Nothing is known at the end: the client asks again (REFUSED), or is sent what is known, nothing (EMPTY). */
  readonly whenUnknown: 'REFUSED' | 'EMPTY';
}

/** What the other types that a client polls make of the answer to a poll (protocol §8). */
export interface Ordered {
  /** The client has this version: that of all that is visible. */
  hasAll(poll: Poll): void;
  /** What it is answered with if not with all that is visible, which has this version. */
  next(poll: Poll, version: string): Response | 'UNCHANGED' | undefined;
}

type State = Omit<WholeState, 'close' | 'selection'>;

/** Undefined: more may be known before the time is up (protocol §7.4). */
export function outcomeOf(
  state: State,
  poll: Poll,
  { unchanged, whenUnknown }: Patience,
  timeIsUp: boolean,
  ordered?: Ordered,
): PollOutcome | undefined {
  if (!state.resolved && !timeIsUp) return undefined;
  const { version } = state;
  const { version: clientVersion } = poll;
  if (unchanged && clientVersion === version) {
    ordered?.hasAll(poll);
    return { kind: 'unchanged', version };
  }
  if (state.resolved || isAnswerable(state, clientVersion, whenUnknown)) {
    const next = ordered?.next(poll, version);
    if (next === 'UNCHANGED') return { kind: 'unchanged', version: clientVersion };
    return { kind: 'response', response: next ?? state.take(), version };
  }
  const message =
    'no control plane has answered yet for what is asked here, and a response without it would delete it: ask again';
  return { kind: 'refused', status: { code: Code.UNAVAILABLE, message } };
}

/** Unknown is not absent (§3.9): an answer that lacks what is unknown must not delete it. */
function isAnswerable(state: State, clientVersion: string, whenUnknown: Patience['whenUnknown']): boolean {
  if (state.complete) return state.collectionsResolved && !state.allUnknown && clientVersion === '';
  return !state.allUnknown || whenUnknown === 'EMPTY';
}
