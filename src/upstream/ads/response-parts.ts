import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { parseConstraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { contentHash, ownBytes } from '../../model/payloads.ts';
import { attempt, errorMessage, fail, ok, type Result } from '../../model/result.ts';
import { quote } from '../../model/text.ts';
import { type InTurns, ReadingPace } from '../../model/time-slices.ts';
import { type Put, type ResourceError, WILDCARD } from '../../model/transaction.ts';
import { isKnownType, longestTypeUrl, typeInfo } from '../../model/types.ts';
import { canonicalName, canonicalNames, isXdstp } from '../../model/xdstp.ts';
import { MessageReader, textOf } from '../../protobuf/message-reader.ts';
import {
  type ByteRanges,
  type IncomingError,
  type IncomingName,
  type IncomingResource,
  readDeltaResource,
  readError,
  readName,
  readSotwResource,
} from '../../wire/response-reader.ts';
import type { Identity, VariantSet } from '../variant-set.ts';
import type { MachineOptions } from './stream-effects.ts';

/**
 * Reads and judges the entries of one response, a part in each turn. Nothing is done with them yet. The error is the
 * reason for a NACK.
 */
export class ResponseParts {
  readonly #rules: AcceptanceRules;
  readonly #options: MachineOptions;
  readonly #pace: ReadingPace;
  readonly #mayLackBody: (put: Put) => boolean;

  constructor(rules: AcceptanceRules, options: MachineOptions, mayLackBody: (put: Put) => boolean) {
    this.#rules = rules;
    this.#options = options;
    this.#mayLackBody = mayLackBody;
    this.#pace = new ReadingPace(options.entriesPerTurn);
  }

  /** Those from `start` to before `end`. */
  resources(entries: ByteRanges, start: number, end: number, seen: VariantSet): InTurns<Result<Put[]>> {
    const { protocol, locators, entriesPerTurn } = this.#options;
    const isDelta = protocol === 'DELTA';
    // With locators each body has its hash, also in a small response: by it a repeated one is known.
    const isHashed = (isDelta && locators) || end - start > entriesPerTurn;
    const accept = (resource: IncomingResource): Result<Put> => {
      const put = acceptResource(this.#rules, resource, seen);
      if (put.ok && resource.any === undefined && !this.#mayLackBody(put.value))
        return fail(withoutBody(resource));
      return put.ok && isHashed ? ok(withPayload(put.value)) : put;
    };
    const place = (index: number): string => `resource ${index + 1} of ${entries.length}`;
    return this.#each(entries, isDelta ? readDeltaResource : readSotwResource, accept, place, start, end);
  }

  errors(entries: ByteRanges): InTurns<Result<ResourceError[]>> {
    const read = (entry: Buffer): IncomingError => readError(new MessageReader(entry));
    return this.#each(entries, read, (error) => acceptError(this.#rules, error));
  }

  /** `removed_resources` has no constraints. */
  removed(entries: ByteRanges, seen: Seen): InTurns<Result<Identity[]>> {
    const read = (entry: Buffer): string => textOf(entry, 0, entry.length);
    const { bytes: constraints } = UNCONSTRAINED;
    return this.#each(entries, read, (name) => acceptRemoval(this.#rules, { name, constraints }, seen));
  }

  removedNames(entries: ByteRanges, seen: Seen): InTurns<Result<Identity[]>> {
    const read = (entry: Buffer): IncomingName => readName(new MessageReader(entry));
    return this.#each(entries, read, (name) => acceptRemoval(this.#rules, name, seen));
  }

  /** `read` throws what cannot be read. Undefined: the entry adds nothing. */
  *#each<Entry, T>(
    entries: ByteRanges,
    read: (entry: Buffer) => Entry,
    accept: (entry: Entry) => Result<T | undefined>,
    place = (_index: number): string => 'undecodable response',
    start = 0,
    end = entries.length,
  ): InTurns<Result<T[]>> {
    const accepted: T[] = [];
    for (let index = start; index < end; index++) {
      const bytes = entries.at(index);
      if (this.#pace.isTurnOver(bytes.length)) yield;
      const entry = attempt(() => read(bytes), errorMessage);
      if (!entry.ok) return fail(`${place(index)}: ${entry.error}`);
      const one = accept(entry.value);
      if (!one.ok) return one;
      if (one.value !== undefined) accepted.push(one.value);
    }
    return ok(accepted);
  }
}

/** The commit cannot be divided, so what it will need is made before. */
function withPayload(put: Put): Put {
  if (put.any === undefined) return put;
  const bytes = ownBytes(put.any);
  return { ...put, any: bytes, payload: { bytes, hash: contentHash(bytes) } };
}

/** What is needed to judge what arrives. */
export type AcceptanceRules = Pick<MachineOptions, 'maxConstraintDepth' | 'stamp'> &
  Readonly<Record<'type', TypeUrl>>;

/** A redirect of an xdstp name: passed on opaquely (protocol §6). */
const REDIRECT_URL = 'type.googleapis.com/xds.core.v3.ResourceLocator';

/** Checks one resource. An error is a reason for a NACK and names the resource. */
function acceptResource(rules: AcceptanceRules, resource: IncomingResource, seen: VariantSet): Result<Put> {
  if (lacksName(rules, resource)) return fail(`a resource has no name (its type is ${rules.type})`);
  const identity = identify(rules, resource);
  if (!identity.ok) return identity;
  const { name, constraints } = identity.value;
  if (resource.any !== undefined && resource.anyType !== rules.type) {
    const redirect = resource.anyType === REDIRECT_URL && isXdstp(resource.name);
    if (!redirect) {
      return fail(
        `${named(resource.name)} is of type ${quote(resource.anyType, 200)} in a response of ${rules.type}`,
      );
    }
  }
  const aliases = canonicalNames(resource.aliases, rules.type);
  if (!aliases.ok) return fail(`alias of ${named(resource.name)}: ${aliases.error}`);
  if (!seen.add(identity.value)) return fail(twice(resource.name));
  const { version, any, ttlMilliseconds, doNotCache, metadata } = resource;
  return ok({
    name,
    constraints,
    version,
    any,
    aliases: aliases.value,
    ttlMilliseconds,
    doNotCache,
    metadata,
  });
}

/** What the entries of one response have named so far. */
type Seen = Readonly<Record<'bodies' | 'removals', VariantSet>>;

/** Checks a removal (`removed_resources` has no constraints). Undefined: the response has it already (protocol §5b.8). */
function acceptRemoval(
  rules: AcceptanceRules,
  removed: IncomingName,
  { bodies, removals }: Seen,
): Result<Identity | undefined> {
  if (lacksName(rules, removed)) return fail('a removed resource has no name');
  const identity = identify(rules, removed);
  if (!identity.ok) return identity;
  if (bodies.has(identity.value)) return fail(twice(removed.name));
  return removals.add(identity.value) ? identity : ok(undefined);
}

function acceptError(rules: AcceptanceRules, error: IncomingError): Result<ResourceError> {
  const isNameless = lacksName(rules, error);
  if (isNameless && !typeInfo(rules.type).legacyWildcard) return fail('a resource error has no name');
  // An empty request is one for everything, and the error that answers it may have no name either (TP3).
  const identity = identify(rules, isNameless ? { ...error, name: WILDCARD } : error);
  if (!identity.ok) return identity;
  const { code, message, status } = error;
  return ok({ ...identity.value, code, message, status });
}

/** Why a response of a type that nobody asked for is refused, and what that type is `known` by in metrics and logs. */
export function unsolicitedType(url: string) {
  const type = typeUrl(url);
  const length = Buffer.byteLength(url);
  if (length <= longestTypeUrl) {
    return { type, known: type, message: `type ${JSON.stringify(url)} was not asked for` };
  }
  const known = typeUrl(`${url.slice(0, longestTypeUrl)}…`);
  return { type, known, message: `type_url has ${length} bytes: at most ${longestTypeUrl} are accepted` };
}

/** Of the types of the xDS protocol each resource has a name. Of others the empty name is one: Istio's NameTable has it. */
const lacksName = ({ type }: AcceptanceRules, { name }: IncomingName): boolean =>
  name === '' && isKnownType(type);

function identify(rules: AcceptanceRules, received: IncomingName): Result<Identity> {
  const name = canonicalName(received.name, rules.type);
  if (!name.ok) return name;
  const parsed = parseConstraints(received.constraints, rules.maxConstraintDepth);
  if (!parsed.ok) return fail(`${named(received.name)}: ${parsed.error}`);
  const constraints = rules.stamp(parsed.value);
  if (!constraints.ok) return fail(`${named(received.name)}: ${constraints.error}`);
  return ok({ name: name.value, constraints: constraints.value });
}

function twice(name: string): string {
  return `${named(name)} comes twice with the same constraints`;
}

const withoutBody = ({ name }: IncomingResource): string =>
  `${named(name)} has no body; that is accepted with a ttl, or with the version that was sent before`;

const named = (name: string): string => `resource ${quote(name, 200)}`;
