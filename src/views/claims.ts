import { resourceName } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { onceFor } from '../model/maps.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { entryId, itemId, requestedNameOf } from '../model/selection.ts';
import { WILDCARD } from '../model/transaction.ts';
import { canonicalName } from '../model/xdstp.ts';
import { type Item, withoutBody } from './item.ts';
import { OtherParameterSets, shownOtherwise } from './position.ts';
import type { Overlay, RetainedResource } from './shared-responses.ts';
import type { View } from './view.ts';

const none: readonly never[] = [];

/** What a client says that it has, and is gone, is kept until it may go: so many of them. */
const mostGone = 1000;
/** Of a resource that is gone and kept, and of a name that no response has covered, besides its characters; measured. */
const [bytesPerGone, bytesPerClaim] = [600, 64];
/** No resource has it: whatever there is of the name is sent. */
const noVersion = '';

export const nothingCovered = { kept: none, named: none, left: undefined };

/**
 * What a delta client says that it has from earlier streams (initial_resource_versions), and no response has covered yet
 * (protocol §4.1): versions by names. It is a hint and no subscription.
 */
export class Claims {
  #versions: ReadonlyMap<string, string>;

  constructor(versions: ReadonlyMap<string, string>) {
    this.#versions = versions;
  }

  versionOf(requestedName: string): string | undefined {
    return this.#versions.get(requestedName);
  }

  /** A wildcard's first response may stay away: some of what it shows may be skipped. */
  get skipsSome(): boolean {
    return this.#versions.values().some((version) => version !== noVersion);
  }

  get bytes(): number {
    let bytes = 0;
    for (const [name, version] of this.#versions) bytes += bytesPerClaim + name.length + version.length;
    return bytes;
  }

  /**
   * The client has subscribed to these again (protocol §4.2), or a changed cluster waits for them (§10.1): they are sent
   * whatever their version is, and with a wildcard or glob among them all are. That the client has them still counts. `ids`:
   * of items, wildcards and globs.
   */
  resend({ selection }: View, ids: ReadonlySet<string>): void {
    const isOfMany = selection.collections.some((one) => ids.has(entryId(one)));
    // Each change of clusters comes here, and most are about nothing that is claimed.
    const named = Iterator.from(ids).map(requestedNameOf);
    const again = [...(isOfMany ? this.#versions.keys() : named)].filter((one) => this.#versions.has(one));
    if (again.length === 0) return;
    const versions = new Map(this.#versions);
    for (const requestedName of again) versions.set(requestedName, noVersion);
    this.#versions = versions;
  }

  /**
   * What a response covers: `kept` and `named` are gone, as the view knows. They are kept until they may go, or are so many
   * that they are removed at once. `left`: for the next response; undefined: nothing. `lastSent`: what the client was sent
   * of an item.
   */
  coveredIn(view: View, lastSent: (id: string) => Value | undefined) {
    const left = new Map(this.#versions);
    let gone: string[] = [];
    const others = new OtherParameterSets(view);
    // Its absence is withheld too (protocol §5.10): what says so later must know that the client has it.
    const isOpen = (item: Item): boolean =>
      item.last.value === 'unknown' || (item.last.value === 'absent' && others.anyUnknown(item));
    for (const item of view.items.values()) {
      const { requestedName, locator, last } = item;
      if (!left.has(requestedName) || isOpen(item)) continue;
      left.delete(requestedName);
      if (last.value === 'absent' && !locator) gone.push(requestedName);
    }
    if (view.collectionsResolved) gone = gone.concat(removedWhileAway(view, left.keys()));
    for (const name of gone) left.delete(name);
    if (view.collectionsResolved) {
      const unknown = new Set(view.unresolvedNames.values().map(({ requestedName }) => requestedName));
      for (const name of left.keys()) if (!unknown.has(name)) left.delete(name);
    }
    const isCovered = view.collectionsResolved && left.size === 0;
    const rest = isCovered ? undefined : new Claims(left);
    const all = gone
      .map((name) => goneWhileAway(view, name, this.#versions.get(name)))
      .filter(({ item }) => !isVariant(lastSent(item.id)) && !shownOtherwise(item, view));
    if (all.length <= mostGone) return { kept: all, named: none, left: rest };
    return { kept: none, named: all.map(({ item }) => item), left: rest };
  }
}

/** What it takes to remember what a client said that it had, and is gone. */
export const bytesOfGone = onceFor((overlay: Overlay): number => {
  let bytes = 0;
  for (const { variant, deferredAt } of overlay.values()) {
    if (deferredAt !== undefined && isVariant(variant) && variant.payload === undefined)
      bytes += bytesPerGone + variant.deltaVersion.length;
  }
  return bytes;
});

/** Those that a wildcard or glob of the view covers, and that the view does not show (protocol §4.1). */
function removedWhileAway(view: View, claimed: Iterable<string>): readonly string[] {
  if (!view.selection.hasCollection) return none;
  const shown = new Set(view.items.values().map(({ requestedName }) => requestedName));
  return [...claimed].filter((name) => !shown.has(name) && collects(view, name));
}

/** A name that no wildcard or glob covers is ignored. */
function collects({ type, selection }: View, name: string): boolean {
  if (selection.hasCollectionSelector(WILDCARD)) return true;
  const canonical = canonicalName(name, type);
  return canonical.ok && selection.collectionsOver(canonical.value).length > 0;
}

/** A resource that a client has from an earlier stream and that is gone. Its body is not known, and its version maybe. */
function goneWhileAway(
  { type, head, items }: View,
  requestedName: string,
  deltaVersion = noVersion,
): RetainedResource {
  const id = itemId(false, NO_PARAMETERS, requestedName);
  const canonical = canonicalName(requestedName, type);
  const name = canonical.ok ? canonical.value : resourceName(requestedName);
  const item = items.get(id) ?? {
    id,
    name,
    requestedName,
    locator: false,
    parameters: NO_PARAMETERS,
    named: false,
    last: { revision: head, value: 'absent', older: undefined },
  };
  return { item, variant: { ...withoutBody(type, name), deltaVersion } };
}
