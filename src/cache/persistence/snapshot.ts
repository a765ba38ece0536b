import { type ResourceName, resourceName, type TypeUrl } from '../../model/brand.ts';
import type { Change } from '../../model/change.ts';
import type { Variant } from '../../model/resource.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, WILDCARD } from '../../model/transaction.ts';
import type { CacheEntry } from '../cached-resource.ts';
import { hasContent, namesOf } from '../interest-content.ts';
import type { InterestState } from '../interests.ts';
import type { ReadableTable } from '../type-table.ts';
import { interestKey, type TakenChanges } from './dirty.ts';

/** What the store had at one moment, between two transactions: immutable, so that it can be written at leisure. */
export type Snapshot = readonly SnapshotEntry[];

export type SnapshotEntry =
  | {
      readonly kind: 'resource';
      readonly type: TypeUrl;
      readonly key: string;
      readonly resource: ResourceNow | undefined;
    }
  | {
      readonly kind: 'interest';
      readonly type: TypeUrl;
      readonly key: string;
      readonly state: InterestNow | undefined;
    }
  | {
      readonly kind: 'version';
      readonly type: TypeUrl;
      readonly key: string;
      readonly version: string | undefined;
    }
  | {
      readonly kind: 'change';
      readonly type: TypeUrl;
      readonly key: string;
      readonly change: Change | undefined;
    };

/** The recorded changes. */
export interface ChangeSource {
  readonly lastRevision: number;
  /** Undefined: it is not kept. */
  get(revision: number): Change | undefined;
  changes(): Iterable<Change>;
}

export interface ResourceNow {
  readonly variants: readonly { readonly variant: Variant; readonly holders: readonly Holder[] }[];
  readonly bindings: readonly (readonly [string, string])[];
}

type InterestNow = Pick<InterestState, 'resolved' | 'holder'>;

type Tables = Iterable<readonly [TypeUrl, ReadableTable]>;

/** Of what is dirty, or of everything that may be kept. */
export function takeSnapshot(
  tables: Tables,
  dirt: TakenChanges,
  excluded: ReadonlySet<TypeUrl>,
  history?: ChangeSource,
): Snapshot {
  const entries: SnapshotEntry[] = [];
  const known = new Map(tables);
  if (dirt.everything) {
    for (const [type, table] of known) if (!excluded.has(type)) takeAll(type, table, entries);
    for (const change of history?.changes() ?? []) {
      if (!excluded.has(change.type)) entries.push(changeEntry(change.type, change.revision, change));
    }
    return entries;
  }
  for (const [type, { resources, interests, versions }] of dirt.types) {
    const table = known.get(type);
    const touched = new Map(interests);
    for (const name of new Set([...resources, ...heldNames(table, interests.values())])) {
      entries.push(resourceEntry(type, table, name));
      for (const interest of naming(table, name)) touched.set(interestKey(interest), interest);
    }
    for (const interest of touched.values()) entries.push(interestEntry(type, table, interest));
    for (const holder of versions) entries.push(versionEntry(type, table, holder));
  }
  for (const [revision, type] of dirt.changes)
    entries.push(changeEntry(type, revision, history?.get(revision)));
  return entries;
}

function takeAll(type: TypeUrl, table: ReadableTable, entries: SnapshotEntry[]): void {
  for (const name of table.names(WILDCARD)) entries.push(resourceEntry(type, table, name));
  for (const { interest } of table.interests.all()) entries.push(interestEntry(type, table, interest));
  for (const holder of table.holders()) entries.push(versionEntry(type, table, holder));
}

function resourceEntry(type: TypeUrl, table: ReadableTable | undefined, name: ResourceName): SnapshotEntry {
  const cached = table?.resource(name);
  // Errors are not kept: a resource that has nothing else is none.
  if (table === undefined || cached === undefined || cached.variants.size === 0)
    return { kind: 'resource', type, key: name, resource: undefined };
  // The last good state of a held name outlives its interests, but not in the file: nothing would end it there.
  const isHeld = table.isHeld(name);
  const variants = cached.variants
    .values()
    .filter((entry) => !isHeld || table.interests.anySees(entry.variant))
    .map((entry) => ({
      variant: entry.variant,
      holders: isHeld ? holdersOfHeld(table, entry) : entry.holders,
    }));
  if (variants.length === 0) return { kind: 'resource', type, key: name, resource: undefined };
  return {
    kind: 'resource',
    type,
    key: name,
    resource: {
      variants,
      bindings: [...(cached.bindings ?? [])].map(([parameters, variant]) => [parameters.key, variant]),
    },
  };
}

/**
 * A held name keeps the holders that it had when it began to wait. Those who have asked by the name since have what it
 * shows too: after a restart it stays for them until upstream has answered anew.
 */
function holdersOfHeld({ interests }: ReadableTable, { variant, holders }: CacheEntry): Holder[] {
  const all = new Map(holders.map((holder) => [holder.key, holder]));
  const states = [...interests.seeing(variant.name, variant.constraints)];
  for (const alias of variant.aliases)
    states.push(...(interests.named(resourceName(alias))?.matching(variant.constraints) ?? []));
  for (const { resolved, holder } of states)
    if (resolved && holder?.role === 'named' && !all.has(holder.key)) all.set(holder.key, holder);
  return [...all.values()];
}

/** The held names that these interests see by name: who has an answer decides how they are written. */
function* heldNames(table: ReadableTable | undefined, interests: Iterable<Interest>): Iterable<ResourceName> {
  if (table === undefined) return;
  for (const { selector } of interests) {
    if (selector === WILDCARD) continue;
    for (const name of namesOf(table, selector)) if (table.isHeld(name)) yield name;
  }
}

/** Those that are written or not by what is there under this name. */
function* naming(table: ReadableTable | undefined, name: ResourceName): Iterable<Interest> {
  if (table === undefined) return;
  const aliases = (table.resource(name)?.variants.values() ?? []).flatMap(({ variant }) => variant.aliases);
  for (const selector of new Set([name, ...aliases])) {
    for (const { interest } of table.interests.named(resourceName(selector))?.values() ?? []) yield interest;
  }
}

/** Clients can name anything: a name under which nothing is there is not kept. It is asked for again after a restart. */
function isWritten(table: ReadableTable, interest: Interest): boolean {
  return isCollection(interest.selector) || hasContent(table, interest);
}

function interestEntry(type: TypeUrl, table: ReadableTable | undefined, interest: Interest): SnapshotEntry {
  const known = table?.interests.get(interest.selector, interest.parameters);
  const state = table !== undefined && isWritten(table, interest) ? known : undefined;
  const now = state === undefined ? undefined : { resolved: state.resolved, holder: state.holder };
  return { kind: 'interest', type, key: interestKey(interest), state: now };
}

function versionEntry(type: TypeUrl, table: ReadableTable | undefined, holder: string): SnapshotEntry {
  return { kind: 'version', type, key: holder, version: table?.version(holder) };
}

function changeEntry(type: TypeUrl, revision: number, change: Change | undefined): SnapshotEntry {
  return { kind: 'change', type, key: String(revision), change };
}
