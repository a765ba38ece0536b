import { type ResourceName, resourceName, type TypeUrl } from '../../model/brand.ts';
import type { Change } from '../../model/change.ts';
import type { Variant } from '../../model/resource.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, WILDCARD } from '../../model/transaction.ts';
import { hasContent } from '../interest-content.ts';
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
    for (const name of resources) {
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
  const variants = cached.variants
    .values()
    .filter((entry) => !table.isHeld(name) || table.interests.anySees(entry.variant))
    .map(({ variant, holders }) => ({ variant, holders: [...holders] }));
  if (variants.length === 0) return { kind: 'resource', type, key: name, resource: undefined };
  return {
    kind: 'resource',
    type,
    key: name,
    resource: { variants, bindings: [...(cached.bindings ?? [])] },
  };
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
