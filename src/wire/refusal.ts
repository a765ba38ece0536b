import { Code, type GrpcStatus } from './grpc-status.ts';
import type { FaultReason, Peer } from './server-stream.ts';

/** Why a stream must end, or is not taken. */
export interface Refusal {
  /** For metrics: one of a few words. */
  readonly reason: string;
  readonly status: GrpcStatus;
  /** For the log, where an operator has to do something. */
  readonly logged?: string;
}

/** Why a stream is ended or not taken while the process ends. */
export const draining: Refusal = {
  reason: 'draining',
  status: { code: Code.UNAVAILABLE, message: 'draining: connect to another replica' },
};

/** `what`: a type, anything, or some of its names. */
export const denied = (what: string): Refusal => ({
  reason: 'denied',
  status: { code: Code.PERMISSION_DENIED, message: `this client may not subscribe to ${what}` },
});

/** It has too much. */
export const exhausted = (reason: string, message: string, logged?: string): Refusal => ({
  reason,
  status: { code: Code.RESOURCE_EXHAUSTED, message },
  ...(logged !== undefined && { logged }),
});

/** Other processes took the last places at the same time. */
export const noPlace = exhausted('streams', 'the maximum number of streams is open (limits.max_streams)');

export const heldBytes = (message: string): Refusal => exhausted('held_bytes', message);

export const malformed = (message: string, reason = 'malformed'): Refusal => ({
  reason,
  status: { code: Code.INVALID_ARGUMENT, message },
});

/** The transport has refused the call. */
export const faulty = (status: GrpcStatus, why?: FaultReason): Refusal => ({
  reason: why ?? (status.code === Code.RESOURCE_EXHAUSTED ? 'request_bytes' : 'malformed'),
  status,
});

export function noFirstRequest(milliseconds: number, { address }: Pick<Peer, 'address'>): Refusal {
  const message = `no request came within ${milliseconds} ms (limits.first_request_timeout)`;
  const logged = `a client (${address}) opened a stream: ${message}`;
  return { reason: 'first_request', status: { code: Code.DEADLINE_EXCEEDED, message }, logged };
}

export const stalled = (milliseconds: number): Refusal =>
  exhausted('stalled', `the client has not read for ${milliseconds} ms (limits.stalled_timeout)`);

/** New rules need what was not kept of the client's node. */
export const rulesChanged: Refusal = {
  reason: 'rules',
  status: { code: Code.UNAVAILABLE, message: 'the rules for parameters have changed: connect again' },
};

export const noNode: Refusal = malformed('the first request of a stream must carry node', 'no_node');
