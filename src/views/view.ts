import type { Access } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import {
  type Catalog,
  type Commit,
  isVariant,
  type StoredResourceError,
  type Value,
} from '../model/catalog.ts';
import { getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Reference, References, Variant } from '../model/resource.ts';
import {
  collectionCovers,
  isCollection,
  itemId,
  type Selection,
  type SelectionEntry,
} from '../model/selection.ts';
import type { MissingEntry, Subscriber } from '../model/subscription.ts';
import type { Payer } from '../model/time-slices.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';
import { type TypeInfo, typeInfo } from '../model/types.ts';
import { isGlob } from '../model/xdstp.ts';
import { Code } from '../wire/grpc-status.ts';
import { referencesOf } from '../wire/references.ts';
import {
  areOne,
  ChangeLog,
  everShown,
  type Form,
  type Item,
  type Items,
  LayeredItems,
  valueAt,
} from './item.ts';
import { Payment } from './payment.ts';
import { onceAtHead, SharedResponses } from './shared-responses.ts';

/** Up to so many forms are looked at one by one. */
const maxScannedForms = 8;

const none: readonly never[] = [];

/** Of an item whose value is looked up next. */
const nothingYet = { revision: 0, value: 'unknown', older: undefined } as const;

/**
 * What one class of clients sees: all subscriptions with the same type, selection, parameters and access. It owns the
 * history of what is visible, and the encoded responses. Each subscription is a cursor into this history.
 */
export class View {
  readonly type: TypeUrl;
  readonly info: TypeInfo;
  readonly selection: Selection;
  readonly access: Access;
  readonly items: Items;
  /** Those that no base shows. */
  readonly #own = new Map<string, Item>();
  /** The view of the same wildcards and globs without names. Undefined: this one has none, or has nothing else. */
  readonly base: View | undefined;
  /** The views that this one is the base of. */
  readonly #dependents = new Set<View>();
  /** Those of them whose clients have not taken everything yet that this one shows. */
  readonly #late = new Set<View>();
  /** The revision of the last commit that changed it; the head may be that of a catalog that was there before. */
  #changedAt = -1;
  /** Revision of the last visible change. */
  head: number;
  /** How many visible changes there have been. */
  generation = 0;
  /** Another one after each of them: what others make once of the head, they know by this. */
  atHead: object = {};
  /** When the transaction of `head` arrived, by `Clock.monotonic()`; 0: before this view was made. */
  headAt = 0;
  /** version_info of the upstream response that last changed this view; may be empty. */
  version = '';
  /** Encoded responses that lead to `head`, by where they start and their encoding. */
  readonly shared: SharedResponses;
  readonly #subscribers = new Set<ViewSubscriber>();
  /** Of them, those that say what clients have that poll. */
  #polling = 0;
  readonly #payment: Payment;
  /** Cursors that have moved to another view and whose clients still have what this one showed. */
  readonly #anchored = new Set<ViewSubscriber>();
  /** How many subscribers have not taken `head` yet. */
  behind = 0;
  readonly #changeLog = new ChangeLog();
  readonly #catalog: Catalog;
  readonly #now: () => number;
  /** Undefined: its clients may see everything. */
  readonly #restriction: Access | undefined;
  /** The distinct (form, parameters) of the selection. */
  readonly forms: readonly Form[];
  /** Named items of which upstream has not said anything yet. */
  readonly #unresolvedNames = new Set<Item>();
  /** Named items that must not be cached. */
  readonly uncached = new Set<Item>();
  #missing: readonly MissingEntry[] | undefined;
  /** Its names that are known not to exist. Times are milliseconds since the epoch. */
  readonly #absentSince = new Map<Item, number>();
  /** Of each wildcard and glob that is answered: its answer came, or something was removed from it for the last time. */
  readonly #emptySince = new Map<string, number>();
  /** Items whose spelling is not the canonical name. */
  readonly #respelled = new Map<ResourceName, Item[]>();

  /**
   * `now`: milliseconds since the epoch. `base`: the view of `selection.collections`; it must be there first.
   */
  constructor(
    catalog: Catalog,
    type: TypeUrl,
    selection: Selection,
    access: Access,
    now: () => number,
    base?: View,
    shared = new SharedResponses(),
  ) {
    this.base = base;
    this.shared = shared;
    this.#now = now;
    if (base !== undefined) base.#dependents.add(this);
    this.items =
      base === undefined ? this.#own : new LayeredItems(this.#own, base.#own, (item) => this.#hides(item));
    this.type = type;
    this.info = typeInfo(type);
    this.selection = selection;
    this.#payment = new Payment(selection);
    this.access = access;
    this.#catalog = catalog;
    this.#restriction = access.unrestricted ? undefined : access;
    this.head = catalog.revision;
    const forms = new Map<string, Form>();
    for (const { locator, parameters } of selection.entries.values()) {
      forms.set(`${locator} ${parameters.id}`, { locator, parameters });
    }
    this.forms = [...forms.values()];
    for (const selected of selection.entries.values()) {
      if (!isCollection(selected.selector)) this.#create(selected, selected.selector, selected.requestedName);
    }
    if (base === undefined) for (const collection of selection.collections) this.#enumerate(collection);
    this.#answeredNow();
    this.version = firstVersion(this, catalog);
  }

  /** SotW responses hold everything that is subscribed; absence deletes (protocol §3.7). */
  get complete(): boolean {
    return this.info.fullState || this.selection.hasCollection;
  }

  /** Whether every wildcard and glob has been answered upstream. */
  get collectionsResolved(): boolean {
    return this.selection.collections.every((selected) => this.isResolved(selected));
  }

  /** Everything that is selected is present or absent. */
  get resolved(): boolean {
    return this.#unresolvedNames.size === 0 && this.collectionsResolved;
  }

  /** Upstream has not said anything yet about what is selected. */
  get allUnknown(): boolean {
    if (this.selection.size === 0) return false;
    for (const item of this.items.values()) if (item.last.value !== 'unknown') return false;
    return !this.selection.collections.some((selected) => this.isResolved(selected));
  }

  /** For inspection: what of the selection is known not to exist. */
  get missing(): readonly MissingEntry[] {
    this.#missing ??= [...this.#lacking()];
    return this.#missing;
  }

  /** `join` and `quit` change it: they know who polls, and who pays. */
  get subscribers(): ReadonlySet<ViewSubscriber> {
    return this.#subscribers;
  }

  get unresolvedNames(): ReadonlySet<Item> {
    return this.#unresolvedNames;
  }

  get payer(): Payer | undefined {
    return this.#payment.payer;
  }

  /** Streams, and classes of polls: a class counts once, however many poll. */
  get subscribed(): number {
    return this.#subscribers.size - this.#polling;
  }

  join(subscriber: ViewSubscriber): void {
    if (subscriber.polls === 'client' && !this.#subscribers.has(subscriber)) this.#polling++;
    this.#subscribers.add(subscriber);
    this.#usedBy(subscriber.payer);
  }

  quit(subscriber: ViewSubscriber): void {
    if (this.#subscribers.delete(subscriber) && subscriber.polls === 'client') this.#polling--;
    this.#usedBy(this.payer);
  }

  /** Its client has this one still, though the cursor has moved to another. */
  anchor(subscriber: ViewSubscriber): void {
    this.#anchored.add(subscriber);
    this.#usedBy(subscriber.payer);
  }

  release(subscriber: ViewSubscriber): void {
    if (this.#anchored.delete(subscriber)) this.#usedBy(this.payer);
  }

  /** Its users have changed, and `payer` is that of one of them. */
  #usedBy(payer: Payer | undefined): void {
    const users = [this.#subscribers, this.#anchored, this.#dependents];
    const isPaidAnew = this.#payment.usedBy(payer, users, this.#members);
    const { base } = this;
    if (isPaidAnew && base !== undefined) base.#usedBy(this.isUnused ? base.payer : this.payer);
  }

  /** How many resources its wildcards and globs show, those of a base left out. */
  get #members(): number {
    return this.base === undefined && this.selection.hasCollection ? this.#own.size : 0;
  }

  itemOf(locator: boolean, parameters: Parameters, requestedName: string): Item | undefined {
    return this.items.get(itemId(locator, parameters, requestedName));
  }

  /** The items of one spelling, whatever their parameters; `name`: the same in canonical spelling. */
  *spelled(locator: boolean, requestedName: string, name: ResourceName): IteratorObject<Item, undefined> {
    const seen = new Set<Parameters>();
    for (const form of this.#formsOf(name)) {
      if (form.locator !== locator || seen.has(form.parameters)) continue;
      seen.add(form.parameters);
      const item = this.itemOf(locator, form.parameters, requestedName);
      if (item !== undefined) yield item;
    }
  }

  /** The items of a name that the client spells differently. */
  respelled(name: ResourceName): readonly Item[] {
    return this.#respelled.get(name) ?? none;
  }

  /** What its clients call an item: one that is a glob, of which there are errors, as they have asked for it. */
  requestedNamesOf(item: Item): readonly string[] {
    if (item.named || !isGlob(item.name)) return [item.requestedName];
    const globs = this.selection.collectionsOver(item.name).filter(({ selector }) => selector === item.name);
    return globs.filter((one) => areOne(one, item)).map(({ requestedName }) => requestedName);
  }

  get hasRespelled(): boolean {
    return this.#respelled.size > 0;
  }

  /** Of many forms few are about one name. */
  #formsOf(name: ResourceName): readonly Form[] {
    return this.forms.length <= maxScannedForms ? this.forms : this.selection.entriesFor(name);
  }

  /** cache_control.do_not_cache: every new subscription goes upstream, so the interest ends with its last client. */
  mustNotLinger(selected: SelectionEntry): boolean {
    const value = this.itemOf(selected.locator, selected.parameters, selected.requestedName)?.last.value;
    return isVariant(value) && value.doNotCache;
  }

  interest(selected: SelectionEntry): Interest {
    return { type: this.type, selector: selected.selector, parameters: selected.parameters };
  }

  /** Takes in what a transaction changed of these names; true if something visible did. */
  apply(commit: Commit, names: readonly ResourceName[], collectionResolved: boolean): boolean {
    const before = this.head;
    this.#missing = undefined;
    const meetsItem = this.#applyNames(commit, names);
    if (collectionResolved) {
      if (this.base === undefined) this.#reenumerate(commit);
      this.#answeredNow();
      this.head = commit.revision; // an empty answer is visible too
    }
    const { base } = this;
    if (base !== undefined && base.#changedAt === commit.revision) {
      base.#late.add(this);
      this.head = commit.revision;
    }
    if (this.head === before) {
      // Nobody is told that an error is over, but newcomers must not get it.
      if (meetsItem) this.shared.clear();
      return false;
    }
    this.#changedAt = commit.revision;
    this.generation++;
    this.headAt = commit.receivedAt;
    if (commit.version !== undefined) this.version = commit.version;
    this.shared.clear();
    this.atHead = {};
    if (this.#changeLog.isLong(this.#own.size)) this.#prune();
    this.#payment.renew(this.#members);
    return true;
  }

  /** True: one of its items, or of its base, has such a name. */
  #applyNames(commit: Commit, names: readonly ResourceName[]): boolean {
    let meetsItem = false;
    for (const name of names) {
      for (const form of this.#formsOf(name)) {
        const id = itemId(form.locator, form.parameters, name);
        const item = this.#own.get(id);
        meetsItem ||= item !== undefined || this.base?.items.get(id) !== undefined;
        if (item !== undefined) this.#update(item, commit);
        else if (this.base === undefined) this.#addMember(form, name, commit);
      }
      for (const item of this.#respelled.get(name) ?? none) {
        meetsItem = true;
        this.#update(item, commit);
      }
    }
    return meetsItem;
  }

  /** Called when a cursor has moved. When all are at the head, nothing older is needed. */
  dropHistory(): void {
    if (this.behind > 0 || this.#anchored.size > 0 || this.#late.size > 0) return;
    for (const item of this.#changeLog.clear()) {
      item.last.older = undefined;
      if (this.#isForgettable(item)) this.#own.delete(item.id);
    }
    this.#payment.renew(this.#members);
    if (this.base !== undefined) this.base.#caughtUp(this);
  }

  /** They subscribe to it, or need what it showed. */
  get hasClients(): boolean {
    return this.#subscribers.size + this.#anchored.size > 0;
  }

  get isUnused(): boolean {
    return !this.hasClients && this.#dependents.size === 0;
  }

  /** A response of it may be needed again. */
  get isShared(): boolean {
    const others = this.subscribed + this.#dependents.size;
    return others > 1 || this.#polling > 1;
  }

  /** It is not used any more. */
  leaveBase(): void {
    const { base } = this;
    if (base === undefined) return;
    base.#dependents.delete(this);
    base.#usedBy(base.payer);
    base.#caughtUp(this);
  }

  /** The view that shows the same: the base, if the names add nothing to its wildcards and globs. */
  get shown(): View {
    const { base } = this;
    if (base === undefined || base.version !== this.version) return this;
    for (const item of this.#own.values()) {
      const member = base.itemOf(item.locator, item.parameters, item.name);
      if (member !== undefined || isVariant(item.last.value) || this.resourceErrors(item).length > 0)
        return this;
    }
    return base;
  }

  #caughtUp(dependent: View): void {
    if (this.#late.delete(dependent) && this.#late.size === 0) this.dropHistory();
  }

  /** An item of the base that is not shown, as one of its own stands for it. */
  #hides(member: Item): boolean {
    return this.#own.has(member.id) || this.#isRespelled(member, member.name);
  }

  /** The items that changed after a revision, each once, in the order of their last change. */
  *changedSince(revision: number): Iterable<Item> {
    yield* this.#changeLog.since(revision);
    if (this.base === undefined) return;
    for (const item of this.base.changedSince(revision)) if (!this.#hides(item)) yield item;
  }

  /** What the resources at a revision refer to: that of the head, or of a subscriber. */
  referencesAt(revision: number): References {
    return getOrMake(referencesAt(this), revision, () => {
      const all = new Set<Reference>();
      for (const item of this.items.values()) {
        const value = valueAt(item, revision);
        if (isVariant(value)) for (const one of referencesOf(value)) all.add(one);
      }
      return all;
    });
  }

  /** What the changes since a revision refer to, unless what they replace did. */
  referencesSince(revision: number): References {
    return getOrMake(referencesSince(this), revision, () => {
      const added = new Set<Reference>();
      for (const item of revision < 0 ? this.items.values() : this.changedSince(revision)) {
        const now = item.last.value;
        if (!isVariant(now)) continue;
        const lastSent = valueAt(item, revision);
        const before = isVariant(lastSent) ? referencesOf(lastSent) : undefined;
        for (const one of referencesOf(now)) if (before?.has(one) !== true) added.add(one);
      }
      return added;
    });
  }

  resourceErrors(item: Item): readonly StoredResourceError[] {
    const errors = this.#errorsFor(item);
    const { value } = item.last;
    if (errors.length === 0 || value === 'absent') return errors;
    return errors.filter((error) => !this.isKeptBeside(value, error));
  }

  /**
   * Who has a resource is not told beside it that the name does not exist, but when it has gone (protocol §8.2). Where
   * absence does not delete, nothing else would tell a SotW client that upstream does not have this one any more.
   */
  isKeptBeside(shown: Variant | 'unknown', { code, name, constraints }: StoredResourceError): boolean {
    if (code !== Code.NOT_FOUND) return false;
    const isOfThis = isVariant(shown) && name === shown.name && constraints.key === shown.constraints.key;
    return this.complete || !isOfThis;
  }

  /**
   * An error that upstream sent for a name goes to subscribers of the name, or of a glob that covers it, not of the
   * wildcard. The errors of a resource that exists, but not for these clients, are not for them either.
   */
  #errorsFor(item: Item): readonly StoredResourceError[] {
    const { name, parameters, named } = item;
    if (!this.#allows(name)) return none;
    if (named) return this.#errorsOf(name, parameters);
    const errors = new Set<StoredResourceError>();
    for (const one of this.selection.collectionsOver(name)) {
      if (!areOne(one, item)) continue;
      for (const error of this.#errorsOf(name, one.parameters))
        if (one.selector !== WILDCARD || error.fromWildcard) errors.add(error);
    }
    return [...errors];
  }

  #errorsOf(name: ResourceName, parameters: Parameters): readonly StoredResourceError[] {
    const errors = this.#catalog.resourceErrors(this.type, name, parameters);
    if (errors.length === 0 || this.#isHidden(name, parameters)) return none;
    const { type } = this;
    return errors.filter(({ constraints }) =>
      this.admits({ type, name, aliases: none, constraints }, parameters),
    );
  }

  /** Whether its clients may get this resource for what they ask with these parameters. */
  admits(
    variant: Pick<Variant, 'type' | 'name' | 'aliases' | 'constraints'>,
    parameters: Parameters,
  ): boolean {
    return this.#restriction?.admits(variant, parameters) ?? true;
  }

  #allows(name: ResourceName): boolean {
    return this.#restriction?.allows(this.type, name) ?? true;
  }

  #isHidden(name: ResourceName, parameters: Parameters): boolean {
    if (this.#restriction === undefined || isVariant(this.#resolve(name, parameters))) return false;
    return isVariant(this.#catalog.resolve(this.type, name, parameters));
  }

  /** By its own name or by an alias. What its clients may not see does not exist. */
  #resolve(name: ResourceName, parameters: Parameters, fromWildcard = false): Value {
    return this.#catalog.resolve(this.type, name, parameters, this.#restriction, fromWildcard);
  }

  /** Forgets the history between the positions of cursors: slow clients must not make it grow. */
  #prune(): void {
    const revisions = new Set<number>();
    for (const view of [this, ...this.#dependents]) {
      for (const subscriber of [...view.subscribers, ...view.#anchored]) {
        const revision = subscriber.positionIn(view);
        if (revision !== undefined) revisions.add(revision);
      }
    }
    this.#changeLog.prune(revisions, this.head);
    for (const [id, item] of this.#own) {
      // An item that appeared and disappeared between two cursors is in no response.
      if (this.#isForgettable(item) && !everShown(item)) this.#own.delete(id);
    }
    this.#changeLog.dropMissing(this.#own);
  }

  /** Whether upstream has said what one of its wildcards or globs shows. */
  isResolved(selected: SelectionEntry): boolean {
    return this.#catalog.isResolved(this.interest(selected));
  }

  *#lacking(): Iterable<MissingEntry> {
    for (const [{ requestedName, name, parameters }, since] of this.#absentSince)
      yield { name: requestedName, canonical: name, parameters, since };
    for (const selected of this.selection.collections) {
      if (!this.isResolved(selected) || filledIn(this).has(selected)) continue;
      const { requestedName, selector, parameters } = selected;
      const since = (this.base ?? this).#emptySince.get(collectionKey(selected)) ?? this.#now();
      yield { name: requestedName, canonical: selector, parameters, since };
    }
  }

  #answeredNow(): void {
    if (this.base !== undefined) return;
    for (const selected of this.selection.collections) {
      const key = collectionKey(selected);
      if (!this.#emptySince.has(key) && this.isResolved(selected)) this.#emptySince.set(key, this.#now());
    }
  }

  #trackAbsence(item: Item, value: Value): void {
    const { named, name } = item;
    if (named && value === 'absent') this.#absentSince.set(item, this.#now());
    else this.#absentSince.delete(item);
    if (named || isVariant(value)) return;
    for (const selected of this.selection.collectionsOver(name))
      if (areOne(selected, item)) this.#emptySince.set(collectionKey(selected), this.#now());
  }

  #reenumerate(commit: Commit): void {
    for (const collection of this.selection.collections) this.#enumerate(collection, commit);
    for (const item of this.#own.values()) if (!item.named) this.#update(item, commit);
  }

  #enumerate(collection: SelectionEntry, commit?: Commit): void {
    const { selector, parameters, locator } = collection;
    for (const name of this.#catalog.members(this.type, selector, parameters)) {
      const id = itemId(locator, parameters, name);
      if (this.#own.has(id) || this.#isRespelled(collection, name)) continue;
      if (commit === undefined) this.#create(collection, name, name, false);
      else this.#addMember({ locator, parameters }, name, commit);
    }
  }

  #item(form: Form, name: ResourceName, requestedName: string, named: boolean): Item {
    const { locator, parameters } = form;
    const id = itemId(locator, parameters, requestedName);
    return { id, name, requestedName, locator, parameters, named, last: nothingYet };
  }

  #create(form: Form, name: ResourceName, requestedName: string, named = true): void {
    const item = this.#item(form, name, requestedName, named);
    item.last = { revision: this.head, value: this.#value(item), older: undefined };
    this.#own.set(item.id, item);
    this.#track(item, item.last.value);
    if (named && item.last.value === 'absent') this.#trackAbsence(item, 'absent');
    if (requestedName !== name) getOrMake(this.#respelled, name, () => []).push(item);
  }

  #addMember(form: Form, name: ResourceName, commit: Commit): void {
    const item = this.#item(form, name, name, false);
    const value = this.#value(item);
    const isShown = isVariant(value) && !this.#isRespelled(form, name);
    if (!isShown && this.resourceErrors(item).length === 0) return;
    item.last = { revision: commit.revision, value, older: undefined };
    this.#own.set(item.id, item);
    this.#record(item, commit);
  }

  #update(item: Item, commit: Commit): void {
    const value = this.#value(item);
    const { cohort } = this.access;
    const hasNewError = this.resourceErrors(item).some((error) => error.revision[cohort] === commit.revision);
    if (value === item.last.value && !hasNewError) return;
    this.#track(item, value);
    if (value !== item.last.value) this.#trackAbsence(item, value);
    if (item.last.revision === commit.revision) {
      item.last = { revision: commit.revision, value, older: item.last.older };
      return;
    }
    item.last = { revision: commit.revision, value, older: item.last };
    this.#record(item, commit);
  }

  #track(item: Item, value: Value): void {
    if (item.named && value === 'unknown') this.#unresolvedNames.add(item);
    else this.#unresolvedNames.delete(item);
    if (item.named && isVariant(value) && value.doNotCache) this.uncached.add(item);
    else this.uncached.delete(item);
  }

  #record(item: Item, commit: Commit): void {
    this.#changeLog.add(commit.revision, item);
    this.head = commit.revision;
  }

  #value(item: Item): Value {
    const { name, parameters } = item;
    if (!this.#allows(name)) return 'absent';
    if (item.named) return this.#resolve(name, parameters);
    // A member of what is answered is shown, though another one over it may not be. A glob comes last, and counts most.
    let shownBy: SelectionEntry | undefined;
    let isUnknown = false;
    for (const collection of this.selection.collectionsOver(name)) {
      if (!areOne(collection, item)) continue;
      if (!this.isResolved(collection)) isUnknown = true;
      else if (this.#catalog.isMember(this.type, collection.selector, name, collection.parameters))
        shownBy = collection;
    }
    if (shownBy === undefined) return isUnknown ? 'unknown' : 'absent';
    const value = this.#resolve(name, shownBy.parameters, shownBy.selector === WILDCARD);
    // What is found by an alias is another resource, and a member by its own name, if they may see it.
    return this.#restriction === undefined || (isVariant(value) && value.name === name) ? value : 'absent';
  }

  /** Subscribed by name in another spelling (protocol §6): it is shown so, and not a second time as a member. */
  #isRespelled(form: Form, name: ResourceName): boolean {
    return this.#respelled.get(name)?.some((item) => areOne(item, form)) === true;
  }

  /** A former member of a wildcard that is absent and has no error: nobody needs its entry any more. */
  #isForgettable(item: Item): boolean {
    return !item.named && item.last.value === 'absent' && this.resourceErrors(item).length === 0;
  }
}

/** By the revisions of clients. */
const referencesAt = onceAtHead(() => new Map<number, References>());
const referencesSince = onceAtHead(() => new Map<number, References>());

/** The wildcards and globs that show something. While one of them waits, each client asks with each update. */
export const filledIn = onceAtHead(({ items, selection }: View): ReadonlySet<SelectionEntry> => {
  const filled = new Set<SelectionEntry>();
  for (const { name: selector, locator, parameters, last } of items.values()) {
    if (filled.size === selection.collections.length) break;
    if (!isVariant(last.value)) continue;
    for (const collection of selection.collectionsOver(selector))
      if (collectionCovers(collection, { selector, locator, parameters })) filled.add(collection);
  }
  return filled;
});

/** Of a plain name the id of an entry has no parameters. */
const collectionKey = ({ parameters, requestedName }: SelectionEntry): string =>
  itemId(true, parameters, requestedName);

/** version_info of the upstream response that brought what a new view shows; may be empty. */
function firstVersion(view: View, catalog: Catalog): string {
  const { selection, items } = view;
  const [collection] = selection.collections;
  if (collection !== undefined) return catalog.version(view.interest(collection));
  let newest: { revision: number; responseVersion: string } | undefined;
  for (const { last } of items.values()) {
    if (isVariant(last.value) && last.value.revision > (newest?.revision ?? -1)) newest = last.value;
  }
  if (newest !== undefined) return newest.responseVersion;
  // Nothing is there: then the response that said so.
  for (const selected of selection.entries.values()) {
    const version = catalog.version(view.interest(selected));
    if (version !== '') return version;
  }
  return '';
}

/** A subscription as its view sees it. */
export interface ViewSubscriber extends Subscriber {
  /** The revision of a view that its client was last sent; undefined: that was another view's, or nothing yet. */
  positionIn(view: object): number | undefined;
  /** The view has changed. */
  invalidated(): void;
}
