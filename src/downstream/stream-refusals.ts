import type { Selection } from '../model/selection.ts';
import type { TypeInfo } from '../model/types.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { Peer } from '../wire/server-stream.ts';
import type { DownstreamServices } from './services.ts';

/** Why a stream must end. `reason` is the one in metrics. */
export interface Refusal {
  readonly reason: string;
  readonly status: GrpcStatus;
}

/** One type of a client, as far as it decides whether the client can be served. */
export interface AskedType {
  readonly info: TypeInfo;
  readonly selection: Selection;
  /** Undefined: there is none yet. */
  readonly subscription: { readonly responded: boolean; readonly allUnknown: boolean } | undefined;
}

export const malformed = (message: string): GrpcStatus => ({ code: Code.INVALID_ARGUMENT, message });

export const noFirstRequest = (milliseconds: number): Refusal => ({
  reason: 'first_request',
  status: {
    code: Code.DEADLINE_EXCEEDED,
    message: `no request came within ${milliseconds} ms (limits.first_request_timeout)`,
  },
});

/** Another worker took the last place at the same time. */
export const noPlace: Refusal = {
  reason: 'streams',
  status: {
    code: Code.RESOURCE_EXHAUSTED,
    message: 'as many streams are open as this relay takes (limits.max_streams)',
  },
};

export const stalled = (milliseconds: number): Refusal => ({
  reason: 'stalled',
  status: {
    code: Code.RESOURCE_EXHAUSTED,
    message: `the client has not read for ${milliseconds} ms (limits.stalled_timeout)`,
  },
});

export const heldBytes = (message: string): Refusal => ({
  reason: 'held_bytes',
  status: { code: Code.RESOURCE_EXHAUSTED, message },
});

/** What is kept for the peer alone is more than it may be. */
export function heldTooMuch({ account: { excess } }: Peer): Refusal | undefined {
  return excess === undefined ? undefined : heldBytes(excess);
}

/**
 * A stream fails before its first response if nothing that it subscribes to is cached and none of its upstreams can be
 * reached. gRPC clients then see a lost connection and not "does not exist" (protocol §8, Upstream outage).
 */
export function unavailable(
  types: readonly AskedType[],
  services: Pick<DownstreamServices, 'isUnavailable'>,
): Refusal | undefined {
  let isSubscribed = false;
  for (const { info, subscription, selection } of types) {
    if (subscription?.responded === true) return undefined;
    if (selection.size === 0) continue;
    if (subscription?.allUnknown !== true) return undefined;
    isSubscribed = true;
    for (const { selector } of selection.entries.values()) {
      if (!services.isUnavailable(info.url, selector)) return undefined;
    }
  }
  if (!isSubscribed) return undefined;
  const message = 'no control plane can be reached, and nothing that this stream asks for is cached';
  return { reason: 'cold', status: { code: Code.UNAVAILABLE, message } };
}

/**
 * A control plane that decides by node gets no more sessions than limits.max_upstream_sessions. Silence would look like
 * resources that do not exist, so the stream fails before it says anything. A refused locator gets a resource error instead.
 */
export function refusedUpstream(
  types: readonly AskedType[],
  services: Pick<DownstreamServices, 'refusal'>,
): Refusal | undefined {
  for (const { info, selection } of types) {
    for (const { locator, selector, parameters } of selection.entries.values()) {
      if (locator) continue;
      const message = services.refusal({ type: info.url, selector, parameters });
      if (message === undefined) continue;
      return { reason: 'upstream_sessions', status: { code: Code.RESOURCE_EXHAUSTED, message } };
    }
  }
  return undefined;
}
