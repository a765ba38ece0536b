import { hash } from 'node:crypto';

/** Bytes of a node's id and of its cluster: they are kept for each client, and in lists of nodes. */
export const mostNodeText = 1024;

/**
 * Where a node stands among all: 0 or more, less than 1. The same node always stands at the same place, so a larger
 * share of the nodes only adds to it.
 */
export function placeOf(nodeId: string): number {
  return Number.parseInt(hash('sha256', nodeId, 'hex').slice(0, 12), 16) / 2 ** 48;
}
