import { type ResourceName, resourceName, type TypeUrl } from '../../model/brand.ts';
import type { Variant } from '../../model/resource.ts';
import { isCollection } from '../../model/selection.ts';
import type { Holder, Interest } from '../../model/transaction.ts';
import { contentOf } from '../interest-content.ts';
import type { InterestState } from '../interests.ts';
import type { TypeTable } from '../type-table.ts';
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
    };

export interface ResourceNow {
  readonly variants: readonly { readonly variant: Variant; readonly holders: readonly Holder[] }[];
  readonly bindings: readonly (readonly [string, string])[];
}

type InterestNow = Pick<InterestState, 'resolved' | 'holder'>;

type Tables = Iterable<readonly [TypeUrl, TypeTable]>;

/** Of what is dirty, or of everything that may be kept. */
export function takeSnapshot(tables: Tables, dirt: TakenChanges, excluded: ReadonlySet<TypeUrl>): Snapshot {
  const entries: SnapshotEntry[] = [];
  const known = new Map(tables);
  if (dirt.everything) {
    for (const [type, table] of known) if (!excluded.has(type)) takeAll(type, table, entries);
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
  return entries;
}

function takeAll(type: TypeUrl, table: TypeTable, entries: SnapshotEntry[]): void {
  for (const name of table.resources.keys()) entries.push(resourceEntry(type, table, name));
  for (const { interest } of table.interests.all()) entries.push(interestEntry(type, table, interest));
  for (const holder of table.versions.keys()) entries.push(versionEntry(type, table, holder));
}

function resourceEntry(type: TypeUrl, table: TypeTable | undefined, name: ResourceName): SnapshotEntry {
  const cached = table?.resources.get(name);
  // Errors are not kept: a resource that has nothing else is none.
  if (cached === undefined || cached.variants.size === 0)
    return { kind: 'resource', type, key: name, resource: undefined };
  const variants = cached.variants
    .values()
    .map(({ variant, holders }) => ({ variant, holders: [...holders] }));
  return {
    kind: 'resource',
    type,
    key: name,
    resource: { variants, bindings: [...(cached.bindings ?? [])] },
  };
}

/** Those that are written or not by what is there under this name. */
function* naming(table: TypeTable | undefined, name: ResourceName): Iterable<Interest> {
  if (table === undefined) return;
  const aliases = (table.resources.get(name)?.variants.values() ?? []).flatMap(
    ({ variant }) => variant.aliases,
  );
  for (const selector of new Set([name, ...aliases])) {
    for (const { interest } of table.interests.named(resourceName(selector))?.values() ?? []) yield interest;
  }
}

/** Clients can name anything: a name under which nothing is there is not kept. It is asked for again after a restart. */
function isWritten(table: TypeTable, interest: Interest): boolean {
  return isCollection(interest.selector) || contentOf(table, interest).hasContent;
}

function interestEntry(type: TypeUrl, table: TypeTable | undefined, interest: Interest): SnapshotEntry {
  const known = table?.interests.get(interest.selector, interest.parameters);
  const state = table !== undefined && isWritten(table, interest) ? known : undefined;
  const now = state === undefined ? undefined : { resolved: state.resolved, holder: state.holder };
  return { kind: 'interest', type, key: interestKey(interest), state: now };
}

function versionEntry(type: TypeUrl, table: TypeTable | undefined, holder: string): SnapshotEntry {
  return { kind: 'version', type, key: holder, version: table?.versions.get(holder) };
}
