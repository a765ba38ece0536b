import type { TypeUrl } from '../../model/brand.ts';
import { ADS_SERVICE, isKnownType, knownTypes, type TypeInfo, typeInfo } from '../../model/types.ts';

/**
 * A stream of a session. The usual ones on ADS are 0 and 1 for the types of the xDS protocol, and 2 and 3 for unknown
 * types. On the services of single types each type has two of its own, with negative numbers. All others are isolated
 * streams.
 */
export type StreamId = number;

export const usualStreams = 4;
const firstOfUnknown = 2;

/** ADS, or a service for each type (`upstreams[].ads.services`). */
export type Services = 'AGGREGATED' | 'PER_TYPE';

/** Not a usual stream. */
export function isIsolated(streamId: StreamId): boolean {
  return streamId >= usualStreams;
}

/** The usual stream of a type; `taken`: the one on which its wildcard or its names are. */
export function homeOf(type: TypeUrl, taken: StreamId | undefined, services: Services): StreamId {
  const first = firstFor(type, services);
  return taken === first ? first + 1 : first;
}

function firstFor(type: TypeUrl, services: Services): StreamId {
  if (!isKnownType(type)) return firstOfUnknown;
  return services === 'PER_TYPE' ? -2 * (typeInfo(type).order + 1) : 0;
}

/** Whether a usual stream is for types that the relay does not know. */
export function isForUnknownTypes(home: StreamId): boolean {
  return home >= firstOfUnknown;
}

/** The gRPC method that a stream calls. */
export function methodPath(streamId: StreamId, protocol: 'DELTA' | 'SOTW'): string {
  const info = streamId < 0 ? knownTypes[Math.ceil(-streamId / 2) - 1] : undefined;
  const method = info === undefined ? undefined : methodOf(info, protocol);
  if (info === undefined || method === undefined) return adsPaths[protocol];
  return `/${info.service}/${method}`;
}

/** Whether a type has a service of its own for this protocol. */
export const hasService = (type: TypeUrl, protocol: 'DELTA' | 'SOTW'): boolean =>
  methodOf(typeInfo(type), protocol) !== undefined;

const methodOf = ({ deltaMethod, streamMethod }: TypeInfo, protocol: 'DELTA' | 'SOTW'): string | undefined =>
  protocol === 'DELTA' ? deltaMethod : streamMethod;

const adsPaths = {
  DELTA: `/${ADS_SERVICE}/DeltaAggregatedResources`,
  SOTW: `/${ADS_SERVICE}/StreamAggregatedResources`,
};
