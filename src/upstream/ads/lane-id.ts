import type { TypeUrl } from '../../model/brand.ts';
import { isKnownType } from '../../model/types.ts';

/**
 * A stream of a session. Usual ones are 0 and 1 for the types of the xDS protocol, and 2 and 3 for others, which clients
 * can invent. More are opened to try something apart.
 */
export type LaneId = number;

export const usualLanes = 4;
const firstOfUnknown = 2;

/** Opened to try something on it. */
export function isApart(lane: LaneId): boolean {
  return lane >= usualLanes;
}

/** The usual stream of a type; `taken`: the one on which its wildcard or its names are. */
export function homeOf(type: TypeUrl, taken: LaneId | undefined): LaneId {
  const first = isKnownType(type) ? 0 : firstOfUnknown;
  return taken === first ? first + 1 : first;
}

/** Whether a usual stream is for types that the relay does not know. */
export function isOfUnknown(home: LaneId): boolean {
  return home >= firstOfUnknown;
}
