import * as z from 'zod';
import {
  constraintsKey,
  type ResourceName,
  resourceName,
  revision,
  type TypeUrl,
  typeUrl,
} from '../../model/brand.ts';
import type { Change, ChangedName, ChangedVariant, Content, RecordedChanges } from '../../model/change.ts';
import { type Clock, lastMoment, type WallTime } from '../../model/clock.ts';
import { type Constraints, maxStampedDepth, parseConstraints } from '../../model/constraints.ts';
import { getOrMake } from '../../model/maps.ts';
import { internParameters, type Parameters } from '../../model/parameters.ts';
import { contentDigest, deltaVersionOf, hashOfDigest } from '../../model/payloads.ts';
import type { Payload, Variant } from '../../model/resource.ts';
import { attempt, fail, type Result } from '../../model/result.ts';
import type { HeldVariant } from '../../model/rollout.ts';
import { covers, isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, type Selector, WILDCARD } from '../../model/transaction.ts';
import type { CacheEntry } from '../cached-resource.ts';
import type { InterestState } from '../interests.ts';
import type { Restored } from '../store.ts';
import type { Journal, TypeTable } from '../type-table.ts';
import { type Dirt, type Dirty, interestKey } from './dirty.ts';
import type { Row, RowBatch } from './records.ts';

/* What rows have on disk: its form, how it is written, and how it is read. */

/** Milliseconds since the epoch. */
export const moment = z.number().min(0).max(lastMoment);
/** A revision, or how many: what AdminService has room for. */
export const count = z.uint32();

/** Key, upstream, role. */
const holderForm = z.tuple([z.string(), z.string(), z.enum(['wildcard', 'named'])]);

const variantForm = z.object({
  /** As received, in base64. */
  constraints: z.string(),
  /** Its digest; left out: it has no body. */
  payload: z.string().optional(),
  version: z.string(),
  responseVersion: z.string(),
  upstream: z.string(),
  since: moment,
  holders: z.array(holderForm),
  aliases: z.array(z.string()).optional(),
  /** Milliseconds as given, and when it runs out, in milliseconds since the epoch. */
  ttl: z.tuple([z.number(), z.number()]).optional(),
  metadata: z.string().optional(),
  /** Of changes. */
  first: z.boolean().optional(),
});

const resourceForm = z.object({
  variants: z.array(variantForm),
  /** The constraints of variants that must not be cached: what they are is not on disk, but that they were. */
  uncached: z.array(z.string()).optional(),
  /** Parameters' key, constraints' key. */
  bindings: z.array(z.tuple([z.string(), z.string()])).optional(),
});

const interestForm = z.object({ answered: z.boolean(), holder: holderForm.nullable() });
/** Selector, parameters' key. */
const interestKeyParts = z.tuple([z.string(), z.string()]);
const versionForm = z.object({ version: z.string() });
const changedNameForm = z.object({
  name: z.string(),
  change: z.enum(['ADDED', 'CHANGED', 'REMOVED']),
  bytes: z.int().min(0),
  verdict: z.enum(['RELEASED', 'PENDING', 'REPLACED', 'DISCARDED']),
  /** Both are left out where no bodies are kept. */
  before: z.array(variantForm).optional(),
  after: z.array(variantForm).optional(),
});

const answersForm = z.object({ accepted: count, rejected: count });

const changeForm = z.object({
  at: moment,
  upstream: z.string(),
  added: count,
  changed: count,
  removed: count,
  first: z.boolean(),
  releasedAt: moment.optional(),
  canariesMs: z.number().optional(),
  clientsMs: z.number().optional(),
  canaries: answersForm.optional(),
  course: z.object({ wave: count, waves: count, cause: z.string().optional() }).optional(),
  answers: answersForm.optional(),
  reason: z.string(),
  names: z.array(changedNameForm),
});

const parameterEntries = z.array(z.tuple([z.string(), z.string()]));

type HolderBody = z.output<typeof holderForm>;
type VariantBody = z.output<typeof variantForm>;
type ResourceBody = z.output<typeof resourceForm>;
type InterestBody = z.output<typeof interestForm>;
type VersionBody = z.output<typeof versionForm>;
type ChangeBody = z.output<typeof changeForm>;

/** A row as the store had it at one moment. Nothing in it changes any more, so that it can be written at leisure. */
export type SnapshotRow = Readonly<ReturnType<typeof row>>;

/** The recorded changes. */
export interface ChangeSource {
  readonly lastRevision: number;
  /** Undefined: it is not kept. */
  get(revision: number): Change | undefined;
  changes(): Iterable<Change>;
}

/** Of what is dirty, or of everything that may be kept: each as it is when it is asked for. */
export function* rowsOf(
  tables: ReadonlyMap<TypeUrl, TypeTable>,
  dirt: Dirt,
  excluded: ReadonlySet<TypeUrl>,
  history?: ChangeSource,
): Iterable<SnapshotRow> {
  if (dirt.everything) {
    for (const [type, table] of tables) if (!excluded.has(type)) yield* allOf(type, table);
    for (const change of [...(history?.changes() ?? [])])
      if (!excluded.has(change.type)) yield changeRow(change.type, change.revision, change);
  }
  for (const [type, { resources, interests, versions, changes }] of dirt.types) {
    const table = tables.get(type);
    const touched = new Map(interests);
    for (const name of new Set([...resources, ...heldNames(table, interests.values())])) {
      yield resourceRow(type, table, name);
      for (const interest of naming(table, name)) touched.set(interestKey(interest), interest);
    }
    for (const interest of touched.values()) yield interestRow(type, table, interest);
    for (const holder of versions) yield versionRow(type, table, holder);
    for (const revision of changes) yield changeRow(type, revision, history?.get(revision));
  }
}

function* allOf(type: TypeUrl, table: TypeTable): Iterable<SnapshotRow> {
  for (const name of table.names(WILDCARD)) yield resourceRow(type, table, name);
  for (const { interest } of table.interests.all()) yield interestRow(type, table, interest);
  for (const holder of new Set([...table.releasedVersions.keys(), ...table.versions.keys()]))
    yield versionRow(type, table, holder);
}

/** `body`: undefined, there is no such thing any more. `variants`: those that it names. */
const row = (
  kind: Row['kind'],
  type: TypeUrl,
  key: string,
  body?: (times: WallTime) => ResourceBody | InterestBody | VersionBody | ChangeBody,
  variants: readonly HeldVariant[] = [],
) => ({ kind, type, key, body, variants });

function resourceRow(type: TypeUrl, table: TypeTable | undefined, name: ResourceName): SnapshotRow {
  const cached = table?.resource(name, 'released');
  // Errors are not kept: a resource that has nothing else is none.
  if (table === undefined || cached === undefined) return row('resource', type, name);
  // The last good state of a held name outlives its interests, but not in the file: nothing would end it there.
  const isHeld = table.held.has(name);
  const variants = cached.variants
    .values()
    .filter(({ variant }) => !isHeld || table.interests.anySees(variant))
    .map((entry) => ({
      variant: entry.variant,
      holders: isHeld ? holdersOfHeld(table, entry) : entry.holders,
    }));
  if (variants.length === 0) return row('resource', type, name);
  const bindings = [...(cached.bindings ?? [])].map(([{ key }, variant]): [string, string] => [key, variant]);
  return row('resource', type, name, (times) => resourceBody(variants, bindings, times), variants);
}

/**
 * A held name keeps the holders that it had when it began to wait. Those who have asked by the name since have what it
 * shows too: after a restart it stays for them until upstream has answered anew.
 */
function holdersOfHeld({ interests }: TypeTable, { variant, holders }: CacheEntry): Holder[] {
  const all = new Map(holders.map((holder) => [holder.key, holder]));
  for (const { answer, holder } of interests.seeingVariant(variant))
    if (answer !== undefined && holder?.role === 'named' && !all.has(holder.key)) all.set(holder.key, holder);
  return [...all.values()];
}

/** The held names that these interests see by name: who has an answer decides how they are written. */
function* heldNames(table: TypeTable | undefined, interests: Iterable<Interest>): Iterable<ResourceName> {
  if (table === undefined) return;
  for (const { selector } of interests) {
    if (selector === WILDCARD) continue;
    for (const name of table.namesOf(selector, 'released')) if (table.held.has(name)) yield name;
  }
}

/** Those that are written or not by what is there under this name. */
function* naming(table: TypeTable | undefined, name: ResourceName): Iterable<Interest> {
  if (table === undefined) return;
  const aliases = (table.resource(name, 'released')?.variants.values() ?? []).flatMap(
    ({ variant }) => variant.aliases,
  );
  for (const selector of new Set([name, ...aliases])) {
    for (const { interest } of table.interests.named(resourceName(selector))?.values() ?? []) yield interest;
  }
}

/** Clients can name anything: a name under which nothing is there is not kept. It is asked for again after a restart. */
function isWritten(table: TypeTable, interest: Interest): boolean {
  return isCollection(interest.selector) || table.hasContent(interest, 'released');
}

function interestRow(type: TypeUrl, table: TypeTable | undefined, interest: Interest): SnapshotRow {
  const key = interestKey(interest);
  const state = table?.interests.get(interest.selector, interest.parameters);
  if (table === undefined || state === undefined || !isWritten(table, interest))
    return row('interest', type, key);
  const { answer, holder } = state;
  const body = { answered: answer !== undefined, holder: holder === undefined ? null : holderBody(holder) };
  return row('interest', type, key, () => body);
}

function versionRow(type: TypeUrl, table: TypeTable | undefined, holder: string): SnapshotRow {
  const version = table?.version(holder, 'released');
  return row('version', type, holder, version === undefined ? undefined : () => ({ version }));
}

function changeRow(type: TypeUrl, revision: number, change: Change | undefined): SnapshotRow {
  if (change === undefined) return row('change', type, String(revision));
  const variants = change.names.flatMap(({ content }) =>
    content === undefined ? [] : [...content.before, ...content.after],
  );
  return row('change', type, String(revision), (times) => changeBody(change, times), variants);
}

/** How much goes from thread to thread at once: little, as it is copied on the thread that serves. */
const partRows = 500;
const partBytes = 1024 * 1024;

/**
 * Rows as they are on disk, in parts; each is asked for when its part is made. A payload comes with or before the first row that refers to it, unless it is on disk.
 * `added`: takes the digests of those that come. Both are digests.
 */
export function* encode(
  snapshot: Iterable<SnapshotRow>,
  stored: ReadonlySet<string>,
  added: Set<string>,
  times: WallTime,
): Iterable<RowBatch> {
  let rows: Row[] = [];
  let payloads: RowBatch['payloads'][number][] = [];
  let size = 0;
  for (const { kind, type, key, body, variants } of snapshot) {
    const named = payloadsOf(variants);
    for (const [digest, { bytes }] of named) {
      if (stored.has(digest) || added.has(digest)) continue;
      added.add(digest);
      payloads.push({ digest, bytes });
      size += bytes.length;
    }
    rows.push({ kind, type, key, body: body && JSON.stringify(body(times)), payloads: [...named.keys()] });
    if (rows.length < partRows && size < partBytes) continue;
    yield { rows, payloads };
    rows = [];
    payloads = [];
    size = 0;
  }
  if (rows.length > 0) yield { rows, payloads };
}

/** By digest. */
function payloadsOf(variants: readonly HeldVariant[]): Map<string, Payload> {
  const payloads = new Map<string, Payload>();
  for (const { variant } of variants) {
    if (!variant.doNotCache && variant.payload !== undefined)
      payloads.set(digestOf(variant.payload), variant.payload);
  }
  return payloads;
}

const digests = new WeakMap<Payload, string>();

function digestOf(payload: Payload): string {
  return getOrMake(digests, payload, () => contentDigest(payload.bytes));
}

function resourceBody(
  all: readonly HeldVariant[],
  bindings: [string, string][],
  times: WallTime,
): ResourceBody {
  const variants = all.filter(({ variant }) => !variant.doNotCache);
  const uncached = all.filter(({ variant }) => variant.doNotCache);
  return {
    variants: variants.map((one) => variantBody(one, times)),
    uncached:
      uncached.length === 0 ? undefined : uncached.map((one) => base64(one.variant.constraints.bytes)),
    bindings: bindings.length === 0 ? undefined : bindings,
  };
}

function holderBody({ key, upstream, role }: Holder): HolderBody {
  return [key, upstream, role];
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}

/** The content of names that must not be cached is left out, as if their bodies were not kept. */
function changeBody(
  { revision: _revision, type: _type, names, ...change }: Change,
  times: WallTime,
): ChangeBody {
  return { ...change, names: names.map((one) => changedNameBody(one, times)) };
}

function changedNameBody({ content, ...name }: ChangedName, times: WallTime): ChangeBody['names'][number] {
  if (content === undefined) return name;
  const { before, after } = content;
  if ([...before, ...after].some(({ variant }) => variant.doNotCache)) return name;
  const bodies = (content: Content): VariantBody[] => content.map((one) => variantBody(one, times));
  return { ...name, before: bodies(before), after: bodies(after) };
}

function variantBody({ variant, holders, first }: ChangedVariant, times: WallTime): VariantBody {
  const { version, responseVersion, upstream, cachedSince, aliases, ttl, metadata, payload } = variant;
  return {
    constraints: base64(variant.constraints.bytes),
    version,
    responseVersion,
    upstream,
    since: cachedSince,
    holders: holders.map(holderBody),
    ...(payload === undefined ? {} : { payload: digestOf(payload) }),
    ...(aliases.length === 0 ? {} : { aliases: [...aliases] }),
    ...(ttl === undefined ? {} : { ttl: [ttl.milliseconds, times.of(ttl.deadline)] }),
    ...(metadata === undefined ? {} : { metadata: base64(metadata) }),
    ...(first === undefined ? {} : { first }),
  };
}

/** A payload, whose bytes may be still to come. */
type PendingPayload = Pick<Payload, 'hash'> & { bytes: Uint8Array };

const pending = new Uint8Array(0);

/** A variant that was there and must not be cached. */
type UncachedVariant = Pick<Variant, 'type' | 'name' | 'constraints'>;

/**
 * `keeps`: whether what came from this upstream is still its own. `serves`: the upstream that a selector is asked of.
 * `differs`: hears of rows that were not restored as they are, and have to be written again, or deleted.
 */
type Terms = Readonly<{
  keeps: (upstream: string) => boolean;
  serves: (type: TypeUrl, selector: Selector) => string | undefined;
  clock: Pick<Clock, 'now' | 'monotonic'>;
  differs: Journal & Pick<Dirty, 'change'>;
}>;

/** Makes of loaded rows what a store can restore. */
export class Decoder {
  readonly #terms: Terms;
  /** By digest. Those that rows refer to are filled as they come. */
  readonly #payloads = new Map<string, PendingPayload>();
  readonly #resources: Restored['resources'][number][] = [];
  /** Rows that are read when all resources are known. */
  readonly #later: Row[] = [];
  #problem: string | undefined;
  readonly #holders = new Map<string, Holder>();
  readonly #restoredHolders = new Map<string, Holder>();
  readonly #uncached: UncachedVariant[] = [];

  constructor(terms: Terms) {
    this.#terms = terms;
  }

  take({ rows, payloads }: RowBatch): void {
    if (this.#problem !== undefined) return;
    const taken = attempt(() => {
      for (const row of rows) {
        if (row.kind === 'resource') this.#resource(row);
        else this.#later.push(row);
      }
      for (const { digest, bytes } of payloads) this.#slot(digest).bytes = bytes;
    }, String);
    if (!taken.ok) this.#problem = taken.error;
  }

  /** The digests of all payloads. */
  get payloads(): Iterable<string> {
    return this.#payloads.keys();
  }

  /** The error says that it is not what `encode` wrote. */
  finish(): Result<Restored & Pick<RecordedChanges, 'changes'>> {
    if (this.#problem !== undefined) return fail(this.#problem);
    const { interest = [], version = [], change = [] } = Object.groupBy(this.#later, ({ kind }) => kind);
    const read = attempt(() => {
      const interests = interest.flatMap((row) => this.#interest(row));
      const versions = version.flatMap((row) => this.#version(row));
      const changes = change.map((row) => this.#change(row)).toSorted((a, b) => a.revision - b.revision);
      return { resources: this.#resources, interests, versions, changes };
    }, String);
    const isMissing = read.ok && this.#payloads.values().some(({ bytes }) => bytes === pending);
    return isMissing ? fail('a payload is missing') : read;
  }

  #resource(row: Row): void {
    const type = typeUrl(row.type);
    const name = resourceName(row.key);
    const body = resourceForm.parse(JSON.parse(row.body ?? ''));
    for (const constraints of body.uncached ?? [])
      this.#uncached.push({ type, name, constraints: readConstraints(constraints) });
    const variants: HeldVariant[] = [];
    let whole = body.uncached === undefined;
    for (const variant of body.variants) {
      const holders = variant.holders
        .filter(([, upstream]) => this.#terms.keeps(upstream))
        .map((holder) => this.#holder(holder, true));
      if (holders.length < variant.holders.length) whole = false;
      if (holders.length === 0) continue;
      if (variant.ttl !== undefined && variant.ttl[1] <= this.#terms.clock.now()) whole = false;
      else variants.push({ variant: this.#variant(type, name, variant), holders });
    }
    if (!whole) this.#terms.differs.resource(type, name);
    if (variants.length === 0) return;
    const bindings = (body.bindings ?? []).map(
      ([parameters, variant]) => [readParameters(parameters), constraintsKey(variant)] as const,
    );
    this.#resources.push({ type, name, variants, bindings });
  }

  #variant(type: TypeUrl, name: ResourceName, body: VariantBody): Variant {
    const { version, responseVersion, upstream, since: cachedSince, aliases = [], ttl } = body;
    const constraints = readConstraints(body.constraints);
    const payload = body.payload === undefined ? undefined : this.#slot(body.payload);
    const metadata = body.metadata === undefined ? undefined : Buffer.from(body.metadata, 'base64');
    return {
      type,
      name,
      constraints,
      payload,
      version,
      deltaVersion: deltaVersionOf(version, constraints, payload, aliases, metadata),
      responseVersion,
      upstream,
      cachedSince,
      aliases,
      ttl: ttl && this.#ttl(ttl),
      metadata,
      doNotCache: false,
      revision: revision(0),
    };
  }

  /** On disk it ends by the wall clock, which may have been set since: it has never more left than it was given. */
  #ttl([milliseconds, endsAt]: NonNullable<VariantBody['ttl']>): Variant['ttl'] {
    const { clock } = this.#terms;
    return { milliseconds, deadline: clock.monotonic() + Math.min(milliseconds, endsAt - clock.now()) };
  }

  #interest(row: Row): readonly InterestState[] {
    const type = typeUrl(row.type);
    const [selector, key] = interestKeyParts.parse(JSON.parse(row.key));
    const interest: Interest = { type, selector: resourceName(selector), parameters: readParameters(key) };
    const upstream = this.#terms.serves(type, interest.selector);
    if (upstream === undefined || !this.#terms.keeps(upstream)) {
      this.#terms.differs.interest(interest);
      return [];
    }
    const body = interestForm.parse(JSON.parse(row.body ?? ''));
    const resolved = body.answered && !this.#uncached.some((gap) => sees(interest, gap));
    if (resolved !== body.answered) this.#terms.differs.interest(interest);
    const holder = body.holder === null ? undefined : this.#holder(body.holder, false);
    return [{ interest, answer: resolved ? 'restored' : undefined, holder }];
  }

  /** Only of holders that something restored is from. */
  #version(row: Row): Restored['versions'] {
    const type = typeUrl(row.type);
    const { version } = versionForm.parse(JSON.parse(row.body ?? ''));
    if (this.#holders.has(row.key) || this.#restoredHolders.has(row.key))
      return [{ type, holder: row.key, version }];
    this.#terms.differs.version(type, row.key);
    return [];
  }

  /** As it was written. What waited for canaries waits no more: upstream says it again. */
  #change(row: Row): Change {
    const revision = count.parse(Number(row.key));
    const { names, releasedAt, ...change } = changeForm.parse(JSON.parse(row.body ?? ''));
    const type = typeUrl(row.type);
    // What an operator has made has the content of upstreams too.
    const keeps = names.every(({ before = [], after = [] }) =>
      [...before, ...after].every(({ upstream }) => this.#terms.keeps(upstream)),
    );
    if (!keeps) this.#terms.differs.change(type, revision);
    return {
      ...change,
      revision,
      type,
      releasedAt,
      names: names.map((name) => this.#changedName(type, name, keeps, change.first)),
    };
  }

  #changedName(
    type: TypeUrl,
    { name: text, change, bytes, verdict: written, before, after }: ChangeBody['names'][number],
    keeps: boolean,
    first: boolean,
  ): ChangedName {
    const name = resourceName(text);
    const verdict = written === 'PENDING' ? 'REPLACED' : written;
    // Earlier versions say it of whole changes alone.
    const contentOf = (bodies: readonly VariantBody[], isFirst = false): Content =>
      bodies.map((body) => {
        const holders = body.holders.map((holder) => this.#holder(holder, false));
        const held = { variant: this.#variant(type, name, body), holders };
        return isFirst || body.first === true ? { ...held, first: true } : held;
      });
    const content =
      keeps && before !== undefined && after !== undefined
        ? { before: contentOf(before), after: contentOf(after, first && verdict === 'RELEASED') }
        : undefined;
    return { name, change, bytes, verdict, content };
  }

  #slot(digest: string): PendingPayload {
    return getOrMake(this.#payloads, digest, () => ({ hash: hashOfDigest(digest), bytes: pending }));
  }

  /** One object for each, with its version's. */
  #holder([key, upstream, role]: HolderBody, restored: boolean): Holder {
    const holders = restored ? this.#restoredHolders : this.#holders;
    return getOrMake(holders, key, () => ({ key, upstream, role, ...(restored ? { restored } : {}) }));
  }
}

function readConstraints(base64: string): Constraints {
  const constraints = parseConstraints(Buffer.from(base64, 'base64'), maxStampedDepth);
  if (!constraints.ok) throw new Error(constraints.error);
  return constraints.value;
}

function readParameters(key: string): Parameters {
  return internParameters(key === '' ? [] : parameterEntries.parse(JSON.parse(key)));
}

function sees({ type, selector, parameters }: Interest, gap: UncachedVariant): boolean {
  return type === gap.type && covers(selector, gap.name) && gap.constraints.matches(parameters);
}
