import type { ByteRanges } from '../../wire/response-reader.ts';
import type { AcceptanceRules, Identity } from './accept-resource.ts';

/**
 * The last SotW response of a type. The next one is compared with it byte by byte, so that a response with 50,000
 * resources, of which one has changed, creates objects only for that one.
 */
export interface PreviousResponse {
  readonly resources: ByteRanges;
  /** Of each resource, in order. */
  readonly identities: readonly Identity[];
  /** Some have constraints. */
  readonly constrained: boolean;
  /** By which it was judged. By others its resources would be other variants. */
  readonly rules: AcceptanceRules;
}

/** How many resources at the start and at the end are the same, byte by byte. Together at most the shorter's length. */
export interface CommonEnds {
  readonly prefix: number;
  readonly suffix: number;
}

/**
 * Control planes that keep an order change a few resources in the middle: one memcmp of what is before and one of what
 * is after find them. Those that shuffle are compared resource by resource, by their names.
 */
export function commonEnds(before: ByteRanges, after: ByteRanges): CommonEnds {
  const shorter = Math.min(before.length, after.length);
  const prefix = longestEqual(shorter, (from, to) => sameRun(before, from, after, from, to - from));
  const suffix = longestEqual(shorter - prefix, (from, to) =>
    sameRun(before, before.length - to, after, after.length - to, to - from),
  );
  return { prefix, suffix };
}

/** The largest count up to `limit` of which all are the same, by bisection. */
function longestEqual(limit: number, same: (from: number, to: number) => boolean): number {
  if (same(0, limit)) return limit;
  let low = 0;
  let high = limit;
  while (low + 1 < high) {
    const middle = (low + high) >>> 1;
    if (same(low, middle)) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Compares whole regions: a run of resources, with the tags and lengths between them. A region begins behind the length of
 * its first resource, so that length is compared too. Then equal bytes are the same resources:
 *
 *     … tag length [resource 3 tag length resource 4 tag length resource 5] …
 */
function sameRun(
  before: ByteRanges,
  from: number,
  after: ByteRanges,
  otherFrom: number,
  count: number,
): boolean {
  if (count === 0) return true;
  const [start, end] = [before.start(from), before.end(from + count - 1)];
  const [otherStart, otherEnd] = [after.start(otherFrom), after.end(otherFrom + count - 1)];
  if (end - start !== otherEnd - otherStart) return false;
  if (before.end(from) - start !== after.end(otherFrom) - otherStart) return false;
  return before.bytes.compare(after.bytes, otherStart, otherEnd, start, end) === 0;
}

/** Whether one resource is the same in both. */
export function sameResource(before: ByteRanges, at: number, after: ByteRanges, index: number): boolean {
  return sameRun(before, at, after, index, 1);
}
