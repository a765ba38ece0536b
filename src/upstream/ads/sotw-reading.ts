import type { ResourceName } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import type { Put, ResourceError } from '../../model/transaction.ts';
import type { InTurns } from '../../model/turns.ts';
import type { IncomingSotw } from '../../wire/response-reader.ts';
import type { Identity } from './accept-resource.ts';
import { type AckedResources, SeenVariants } from './acked-resources.ts';
import { commonEnds, type PreviousResponse, sameResource } from './previous-response.ts';
import type { ResponseParts } from './response-parts.ts';

/** What a SotW response says: all of it judged, nothing of it done yet. */
export interface SotwReading {
  /** What is new or changed; everything if there is no previous response to compare with. */
  readonly puts: readonly Put[];
  readonly resourceErrors: readonly ResourceError[];
  /** What a full state does not have any more. */
  readonly missing: readonly Identity[];
  /** Of all resources, in order. */
  readonly identities: readonly Identity[];
}

export interface SotwExpectation {
  readonly parts: ResponseParts;
  readonly acked: AckedResources;
  /** Absence deletes (protocol §3.7). */
  readonly fullState: boolean;
  /** To compare with. In a full state it has all acked resources. */
  readonly previous: PreviousResponse | undefined;
}

/** Judges a response. The error is the reason for a NACK. */
export function* readSotw(expected: SotwExpectation, response: IncomingSotw): InTurns<Result<SotwReading>> {
  const { previous } = expected;
  const compared = previous === undefined ? undefined : yield* compare(expected, previous, response);
  return compared ?? (yield* readAll(expected, response));
}

function* readAll(
  { parts, acked, fullState }: SotwExpectation,
  response: IncomingSotw,
): InTurns<Result<SotwReading>> {
  const seen = new SeenVariants();
  const puts = yield* parts.resources(response.resources, 0, response.resources.length, seen);
  if (!puts.ok) return puts;
  const resourceErrors = yield* parts.errors(response.errors);
  if (!resourceErrors.ok) return resourceErrors;
  const missing: Identity[] = [];
  if (fullState) {
    for (const variant of acked.all()) {
      if (!seen.has(variant.name, variant.constraints.key)) missing.push(variant);
    }
  }
  const identities = puts.value.map(({ name, constraints }) => ({ name, constraints }));
  return ok({ puts: puts.value, resourceErrors: resourceErrors.value, missing, identities });
}

/** Undefined: the comparison is not enough, and the whole response must be read. */
function* compare(
  { parts, acked, fullState }: SotwExpectation,
  previous: PreviousResponse,
  response: IncomingSotw,
): InTurns<Result<SotwReading> | undefined> {
  const { resources } = response;
  const { prefix, suffix } = commonEnds(previous.resources, resources);
  const end = resources.length - suffix;
  const seen = new SeenVariants();
  const read = yield* parts.resources(resources, prefix, end, seen);
  if (!read.ok) return read;
  const before = positions(previous, prefix, previous.identities.length - suffix);
  const puts: Put[] = [];
  for (const [offset, put] of read.value.entries()) {
    const at = before.get(put.name)?.find((index) => isSame(previous.identities[index], put));
    // It may be there twice: changed, and among what was not read because it is unchanged.
    if (at === undefined && prefix + suffix > 0 && acked.get(put.name, put.constraints.key) !== undefined) {
      return undefined;
    }
    // Where upstream cannot delete, all variants of a name count as received.
    if (!fullState && put.constraints.key !== '') return undefined;
    if (at === undefined || !sameResource(previous.resources, at, resources, prefix + offset)) puts.push(put);
  }
  const resourceErrors = yield* parts.errors(response.errors);
  if (!resourceErrors.ok) return resourceErrors;
  const missing = fullState ? missingFrom(previous, before, seen) : [];
  const identities = [
    ...previous.identities.slice(0, prefix),
    ...read.value.map(({ name, constraints }) => ({ name, constraints })),
    ...previous.identities.slice(previous.identities.length - suffix),
  ];
  return ok({ puts, resourceErrors: resourceErrors.value, missing, identities });
}

function missingFrom(
  { identities }: PreviousResponse,
  before: ReadonlyMap<ResourceName, readonly number[]>,
  seen: SeenVariants,
): readonly Identity[] {
  const missing: Identity[] = [];
  for (const index of [...before.values()].flat()) {
    const identity = identities[index];
    if (identity !== undefined && !seen.has(identity.name, identity.constraints.key)) missing.push(identity);
  }
  return missing;
}

function positions(previous: PreviousResponse, start: number, end: number): Map<ResourceName, number[]> {
  const found = new Map<ResourceName, number[]>();
  for (let index = start; index < end; index++) {
    const name = previous.identities[index]?.name;
    if (name === undefined) continue;
    const known = found.get(name);
    if (known === undefined) found.set(name, [index]);
    else known.push(index);
  }
  return found;
}

function isSame(a: Identity | undefined, b: Identity): boolean {
  return a !== undefined && a.name === b.name && a.constraints.key === b.constraints.key;
}
