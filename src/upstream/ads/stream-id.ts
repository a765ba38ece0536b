import type { TypeUrl } from '../../model/brand.ts';
import { isKnownType } from '../../model/types.ts';

/**
 * A stream of a session. The usual ones are 0 and 1 for the types of the xDS protocol, and 2 and 3 for unknown types. All
 * others are isolated streams.
 */
export type StreamId = number;

export const usualStreams = 4;
const firstOfUnknown = 2;

/** Not a usual stream. */
export function isIsolated(streamId: StreamId): boolean {
  return streamId >= usualStreams;
}

/** The usual stream of a type; `taken`: the one on which its wildcard or its names are. */
export function homeOf(type: TypeUrl, taken: StreamId | undefined): StreamId {
  const first = isKnownType(type) ? 0 : firstOfUnknown;
  return taken === first ? first + 1 : first;
}

/** Whether a usual stream is for types that the relay does not know. */
export function isForUnknownTypes(home: StreamId): boolean {
  return home >= firstOfUnknown;
}
