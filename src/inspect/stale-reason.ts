import type { UpstreamState } from '../model/upstream.ts';

/** Why what came from an upstream may be out of date, in words. Only for one that is stale. */
export function staleReason({ kind, connected, everConnected, endpoint, lastError }: UpstreamState): string {
  if (lastError !== '') return lastError;
  if (kind === 'filesystem') return `${endpoint} has not been read yet`;
  // A connection is no answer yet: what is cached is confirmed by responses.
  if (connected) return `connected to ${endpoint}, which has not responded yet`;
  return everConnected
    ? `the connection ended; reconnecting to ${endpoint}`
    : `not connected yet: connecting to ${endpoint}`;
}
