import type { Config } from '../config/config.ts';
import type { StreamLimits } from '../downstream/services.ts';
import type { AccountBounds } from '../wire/accounts.ts';

/** Files are read when they are asked for first. */
const leastFetchMs = 1000;

/** After that long no upstream answers any more what it does not know (protocol §3.9). */
export function fetchMilliseconds({ upstreams }: Config): number {
  return Math.max(leastFetchMs, ...upstreams.map((one) => (one.kind === 'ads' ? one.resourceTimeoutMs : 0)));
}

/** Made once for each configuration, because every response reads them. */
export function streamLimits({ limits, xds }: Config): StreamLimits {
  return {
    maxSubscriptions: limits.maxSubscriptionsPerStream,
    maxNamesLength: limits.maxRequestBytes,
    changesPerSecond: limits.subscriptionChangesPerSecond,
    stalledMilliseconds: limits.stalledTimeoutMs,
    firstRequestMilliseconds: limits.firstRequestTimeoutMs,
    maxResponseBytes: limits.maxResponseBytes,
    removalGraceMilliseconds: xds.removalGraceMs,
  };
}

/** What a peer may use (ADR 81). */
export function accountBounds({ limits }: Config): AccountBounds {
  return {
    heldPerPeer: limits.maxHeldBytesPerPeer,
    held: limits.maxHeldBytes,
    workPerSecond: limits.maxWorkPerPeerMs,
    changesPerSecond: limits.subscriptionChangesPerSecond,
  };
}
