import { type ResourceName, resourceName, type TypeUrl } from '../../model/brand.ts';
import type { Change, ChangedName, Content } from '../../model/change.ts';
import type { WallTime } from '../../model/clock.ts';
import { getOrMake } from '../../model/maps.ts';
import { contentDigest } from '../../model/payloads.ts';
import type { Payload } from '../../model/resource.ts';
import type { HeldVariant } from '../../model/rollout.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, WILDCARD } from '../../model/transaction.ts';
import type { CacheEntry } from '../cached-resource.ts';
import type { TypeTable } from '../type-table.ts';
import type {
  ChangeBody,
  HolderBody,
  InterestBody,
  ResourceBody,
  VariantBody,
  VersionBody,
} from './decode.ts';
import { type Dirt, interestKey } from './dirty.ts';
import type { Row, RowBatch, StoredPayload } from './records.ts';

/**
 * A row as the store had it at one moment, between two transactions. Nothing in it changes any more, so that it can be
 * written at leisure.
 */
export interface SnapshotRow extends Pick<Row, 'kind' | 'key'> {
  readonly type: TypeUrl;
  /** Undefined: there is no such thing any more. */
  readonly body: ((times: WallTime) => ResourceBody | InterestBody | VersionBody | ChangeBody) | undefined;
  /** Those that the body names. */
  readonly variants: readonly HeldVariant[];
}

/** The recorded changes. */
export interface ChangeSource {
  readonly lastRevision: number;
  /** Undefined: it is not kept. */
  get(revision: number): Change | undefined;
  changes(): Iterable<Change>;
}

/** Of what is dirty, or of everything that may be kept. */
export function takeSnapshot(
  tables: ReadonlyMap<TypeUrl, TypeTable>,
  dirt: Dirt,
  excluded: ReadonlySet<TypeUrl>,
  history?: ChangeSource,
): readonly SnapshotRow[] {
  const rows: SnapshotRow[] = [];
  if (dirt.everything) {
    for (const [type, table] of tables) if (!excluded.has(type)) takeAll(type, table, rows);
    for (const change of history?.changes() ?? []) {
      if (!excluded.has(change.type)) rows.push(changeRow(change.type, change.revision, change));
    }
    return rows;
  }
  for (const [type, { resources, interests, versions, changes }] of dirt.types) {
    const table = tables.get(type);
    const touched = new Map(interests);
    for (const name of new Set([...resources, ...heldNames(table, interests.values())])) {
      rows.push(resourceRow(type, table, name));
      for (const interest of naming(table, name)) touched.set(interestKey(interest), interest);
    }
    for (const interest of touched.values()) rows.push(interestRow(type, table, interest));
    for (const holder of versions) rows.push(versionRow(type, table, holder));
    for (const revision of changes) rows.push(changeRow(type, revision, history?.get(revision)));
  }
  return rows;
}

function takeAll(type: TypeUrl, table: TypeTable, rows: SnapshotRow[]): void {
  for (const name of table.names(WILDCARD)) rows.push(resourceRow(type, table, name));
  for (const { interest } of table.interests.all()) rows.push(interestRow(type, table, interest));
  for (const holder of new Set([...table.releasedVersions.keys(), ...table.versions.keys()]))
    rows.push(versionRow(type, table, holder));
}

function row(
  kind: Row['kind'],
  type: TypeUrl,
  key: string,
  body?: SnapshotRow['body'],
  variants: readonly HeldVariant[] = [],
): SnapshotRow {
  return { kind, type, key, body, variants };
}

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

/** Which payloads are on disk, by their digests. */
export class StoredPayloads {
  readonly #digests = new Set<string>();
  /** Of the transaction under way. */
  #added: string[] = [];

  /** True the first time: it has to be sent along. */
  add(digest: string): boolean {
    if (this.#digests.has(digest)) return false;
    this.#digests.add(digest);
    this.#added.push(digest);
    return true;
  }

  loaded(digests: Iterable<string>): void {
    for (const digest of digests) this.#digests.add(digest);
  }

  committed(dropped: readonly string[]): void {
    this.#added = [];
    for (const digest of dropped) this.#digests.delete(digest);
  }

  rolledBack(): void {
    this.committed(this.#added);
  }
}

/** A snapshot as rows, in parts. A payload comes with or before the first row that refers to it. */
export function* encode(
  snapshot: readonly SnapshotRow[],
  stored: StoredPayloads,
  times: WallTime,
): Iterable<RowBatch> {
  let rows: Row[] = [];
  let payloads: StoredPayload[] = [];
  let size = 0;
  for (const { kind, type, key, body, variants } of snapshot) {
    const named = payloadsOf(variants);
    for (const [digest, { bytes }] of named) {
      if (!stored.add(digest)) continue;
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

function variantBody({ variant, holders }: HeldVariant, times: WallTime): VariantBody {
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
  };
}
