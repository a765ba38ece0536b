import type { ResourceName } from '../../model/brand.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { Put, ResourceFault } from '../../model/transaction.ts';
import { type IncomingSotw, readSotwResource, type Slices } from '../../wire/response-reader.ts';
import { type ArrivalRules, acceptError, acceptResource, type Identity } from './arrivals.ts';
import { type Held, Seen } from './held.ts';
import { common, type Image, sameResource } from './image.ts';

/** What a SotW response says: all of it judged, nothing of it done yet. */
export interface SotwReading {
  /** What is new or changed; everything where there was no image to compare with. */
  readonly puts: readonly Put[];
  readonly faults: readonly ResourceFault[];
  /** What was there before and is not any more; only for responses that are full state. */
  readonly gone: readonly Identity[];
  /** Of all resources, in order. */
  readonly identities: readonly Identity[];
}

export interface SotwExpectation {
  readonly rules: ArrivalRules;
  readonly held: Held;
  /** Absence deletes (protocol §3.7). */
  readonly full: boolean;
  /** To compare with. Of a full state, it has all that is held. */
  readonly image: Image | undefined;
}

/** Judges a response. The error is the reason for a NACK. */
export function readSotw(expected: SotwExpectation, response: IncomingSotw): Result<SotwReading> {
  const compared = expected.image === undefined ? undefined : compare(expected, expected.image, response);
  return compared ?? readAll(expected, response);
}

function readAll({ rules, held, full }: SotwExpectation, response: IncomingSotw): Result<SotwReading> {
  const seen = new Seen();
  const puts = readRange(rules, response.resources, 0, response.resources.length, seen);
  if (!puts.ok) return puts;
  const faults = readFaults(rules, response);
  if (!faults.ok) return faults;
  const gone: Identity[] = [];
  if (full) {
    for (const variant of held.all()) {
      if (!seen.has(variant.name, variant.constraints.key)) gone.push(variant);
    }
  }
  const identities = puts.value.map(({ name, constraints }) => ({ name, constraints }));
  return ok({ puts: puts.value, faults: faults.value, gone, identities });
}

/** Undefined where a comparison cannot tell, and the whole must be read. */
function compare(
  { rules, held, full }: SotwExpectation,
  image: Image,
  response: IncomingSotw,
): Result<SotwReading> | undefined {
  const { resources } = response;
  const { prefix, suffix } = common(image.resources, resources);
  const end = resources.length - suffix;
  const seen = new Seen();
  const read = readRange(rules, resources, prefix, end, seen);
  if (!read.ok) return read;
  const before = positions(image, prefix, image.identities.length - suffix);
  const puts: Put[] = [];
  for (const [offset, put] of read.value.entries()) {
    const at = before.get(put.name)?.find((index) => isSame(image.identities[index], put));
    // It may be there twice: changed, and among what was not read because it is unchanged.
    if (at === undefined && prefix + suffix > 0 && held.get(put.name, put.constraints.key) !== undefined) {
      return undefined;
    }
    // Where upstream cannot delete, all variants of a name count as received.
    if (!full && put.constraints.key !== '') return undefined;
    if (at === undefined || !sameResource(image.resources, at, resources, prefix + offset)) puts.push(put);
  }
  const faults = readFaults(rules, response);
  if (!faults.ok) return faults;
  const gone: Identity[] = [];
  if (full) {
    for (const indexes of before.values()) {
      for (const index of indexes) {
        const identity = image.identities[index];
        if (identity !== undefined && !seen.has(identity.name, identity.constraints.key)) gone.push(identity);
      }
    }
  }
  const identities = [
    ...image.identities.slice(0, prefix),
    ...read.value.map(({ name, constraints }) => ({ name, constraints })),
    ...image.identities.slice(image.identities.length - suffix),
  ];
  return ok({ puts, faults: faults.value, gone, identities });
}

function readRange(
  rules: ArrivalRules,
  resources: Slices,
  start: number,
  end: number,
  seen: Seen,
): Result<Put[]> {
  const puts: Put[] = [];
  for (let index = start; index < end; index++) {
    const resource = readSotwResource(resources.at(index));
    if (!resource.ok) return fail(`resource ${index + 1} of ${resources.length}: ${resource.error}`);
    const put = acceptResource(rules, resource.value, seen);
    if (!put.ok) return put;
    puts.push(put.value);
  }
  return ok(puts);
}

function readFaults(rules: ArrivalRules, response: IncomingSotw): Result<ResourceFault[]> {
  const faults: ResourceFault[] = [];
  for (const error of response.errors) {
    const fault = acceptError(rules, error);
    if (!fault.ok) return fault;
    faults.push(fault.value);
  }
  return ok(faults);
}

function positions(image: Image, start: number, end: number): Map<ResourceName, number[]> {
  const found = new Map<ResourceName, number[]>();
  for (let index = start; index < end; index++) {
    const name = image.identities[index]?.name;
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
