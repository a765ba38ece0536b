import type { Access } from '../model/access.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Payer } from '../model/payer.ts';
import type { Reference, References } from '../model/resource.ts';
import { entryId, itemId, type Selection } from '../model/selection.ts';
import {
  type AnswerKind,
  type ClientError,
  type Defers,
  defersNothing,
  type EarlierState,
  type Encoding,
  type Holding,
  type ResendItems,
  type Response,
  resendItems,
  type Subscriber,
  type Subscription,
} from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import { type Change, changesSince } from './change.ts';
import {
  type ClientResources,
  type CursorPosition,
  clientResourcesOf,
  errorsSentUpTo,
  itemsOf,
  lastSentIn,
  removalsIn,
} from './client-resources.ts';
import type { Composed, CursorStep, Frame, RetainedResource } from './frame.ts';
import { holdings, type Item } from './item.ts';
import { NackRetries, retryInput } from './nack-retries.ts';
import type { CompositionInput } from './response-content.ts';
import type { SentItems, SentResponses } from './sent-responses.ts';
import type { View, ViewSubscriber } from './view.ts';
import type { ViewPool } from './view-pool.ts';
import { referencesOfAll } from './view-references.ts';

const none: ReadonlySet<string> = new Set();

/**
 * One client's subscription to a view: the position of the client, and what must be sent in addition to the changes
 * since then. What only one protocol needs is in `SotwCursor` and `DeltaCursor`.
 */
export abstract class Cursor implements Subscription, ViewSubscriber, SentItems {
  encoding: Encoding;
  readonly wake: () => void;
  readonly payer: Payer | undefined;
  readonly polls: boolean;
  protected view: View;
  /** What the client was last sent: the revision of a view. Undefined: nothing was sent yet. */
  protected position: CursorPosition | undefined;
  resumed = false;
  protected deferredRemovals: ReadonlyMap<string, RetainedResource> | undefined;
  readonly #nackRetries = new NackRetries();
  /** A wildcard or glob was added: its first response is sent even if it is empty. */
  #firstResponseDue: boolean;
  readonly #pool: ViewPool;
  #behind = false;
  #coalesced = 0;
  readonly #dueItems = new DueItems();

  constructor(
    pool: ViewPool,
    encoding: Encoding,
    selection: Selection,
    access: Access,
    subscriber: Subscriber,
  ) {
    this.#pool = pool;
    this.encoding = encoding;
    this.wake = subscriber.wake;
    this.payer = subscriber.payer;
    this.#firstResponseDue = selection.hasCollection;
    this.polls = subscriber.polls === true;
    this.view = pool.view(selection, access, this.polls ? selection : undefined);
    this.view.join(this);
    this.markBehind(true);
  }

  abstract readonly responses: SentResponses;
  /** The first request said what the client has from earlier streams. */
  abstract resume(earlier: EarlierState): void;
  /** Nothing is deleted at the client while its state is unknown (protocol §3.9). */
  protected abstract withheld(): boolean;
  protected abstract compose(input: CompositionInput, changes: Iterable<Change>): Composed;

  get selection(): Selection {
    return this.view.selection;
  }

  get size(): number {
    return this.view.items.size;
  }

  get allUnknown(): boolean {
    return this.view.allUnknown;
  }

  get pending(): boolean {
    return !this.#nackRetries.empty || (this.#behind && !this.onlyDeferredRemovals());
  }

  get due(): boolean {
    return !this.#nackRetries.empty || (this.pending && !this.withheld() && !this.awaitsFirstAnswer());
  }

  get responded(): boolean {
    return this.responses.lastNonce !== undefined;
  }

  get hasState(): boolean {
    return this.resumed || this.responded;
  }

  get hasDeferredRemovals(): boolean {
    return this.deferredRemovals !== undefined;
  }

  refersTo(reference: Reference): boolean {
    if (this.view.references.atHead.has(reference)) return true;
    return this.deferredRemovals !== undefined && referencesOfAll(this.deferredRemovals).has(reference);
  }

  newReferences(): References {
    const { view, position } = this;
    if (position?.view === view) return view.references.since(position.revision);
    if (position !== undefined) return view.references.atHead.difference(position.view.references.atHead);
    // What it led to on an earlier stream is not known. In SotW it may be sent again although it has not changed.
    return this.resumed && (this.encoding.protocol === 'delta' || this.polls)
      ? view.references.atHead
      : new Set();
  }

  has(name: string): boolean {
    return this.view.forms.some(({ locator, parameters }) => {
      const id = itemId(locator, parameters, name);
      return isVariant(this.lastSent(id)) || this.deferredRemovals?.has(id) === true;
    });
  }

  positionIn(view: View): number | undefined {
    return this.position?.view === view ? this.position.revision : undefined;
  }

  holdings(): Iterable<Holding> {
    return holdings(this.view.items, this.responses.itemStates(), (id) => this.lastSent(id));
  }

  isShared(response: Response): boolean {
    return this.view.frames.holds(response);
  }

  takeCoalesced(): number {
    const count = this.#coalesced;
    this.#coalesced = 0;
    return count;
  }

  select(selection: Selection, access: Access, again: ReadonlySet<string>): void {
    if (this.view.access.key !== access.key || !this.view.selection.equals(selection))
      this.move(selection, access);
    if (again.size > 0) this.resendSelected(again);
  }

  resend(added: ResendItems): void {
    for (const id of added.items) {
      if (!isVariant(this.lastSent(id))) continue; // what the client does not have is sent anyway
      this.#dueItems.add(added);
      this.markBehind(true);
      return;
    }
  }

  take(defers: Defers): Frame | undefined {
    let frame = this.#nackRetries.empty ? undefined : this.#takeNackRetry();
    if (frame === undefined && this.#behind && !this.withheld()) frame = this.takeChanges(defers);
    if (frame !== undefined) this.responses.sent(frame.sent);
    return frame;
  }

  /**
   * A rejected response is not sent again as it was. Envoy rejects {a invalid, b valid} whole: each resource goes out
   * once more, alone (protocol §3.12).
   */
  answer(nonce: string, error: ClientError | undefined): AnswerKind {
    const kind = this.responses.classify(nonce, error !== undefined);
    if (kind === 'first' || kind === 'change') return kind;
    const answered = this.responses.answered(nonce, error);
    if (kind !== 'stale' && !this.polls) this.#pool.answered(kind === 'ack', answered?.header.receivedAt);
    if (kind === 'nack' && answered !== undefined && this.takesParts) this.#nackRetries.add(answered);
    return kind;
  }

  sentOf(id: string): Value | undefined {
    return this.view.items.has(id) ? this.lastSent(id) : undefined;
  }

  get hasSomething(): boolean {
    if (this.position === undefined) return false;
    return this.view.items.keys().some((id) => isVariant(this.lastSent(id)));
  }

  close(): void {
    this.markBehind(false);
    const anchor = this.position?.view;
    this.position = undefined;
    anchor?.anchored.delete(this);
    this.view.quit(this);
    this.leave(this.view);
    if (anchor !== undefined && anchor !== this.view) this.leave(anchor);
  }

  /** The view changed. */
  invalidated(): void {
    this.markBehind(true);
  }

  /** Whether a response may hold a part of what the client subscribes to. */
  protected get takesParts(): boolean {
    return true;
  }

  protected move(selection: Selection, access: Access): void {
    const old = this.view;
    this.#firstResponseDue = selection.collections.some(
      (selected) => this.#firstResponseDue || !old.selection.has(entryId(selected)),
    );
    this.markBehind(false);
    this.view = this.#pool.view(selection, access, old.selection);
    this.view.join(this);
    this.view.anchored.delete(this);
    this.markBehind(true);
    if (this.position?.view === old) old.anchored.add(this);
    old.quit(this);
    this.leave(old);
  }

  protected leave(view: View): void {
    if (view.isUnused) this.#pool.retire(view);
    else view.dropHistory();
  }

  /** The selected items with these ids, and what the wildcards and globs among them show, are sent again. */
  protected resendSelected(ids: ReadonlySet<string>): void {
    const collections = this.view.selection.collections.filter((selected) => ids.has(entryId(selected)));
    // A response is due, even if it is empty.
    if (collections.some(({ selector }) => selector === WILDCARD)) this.#firstResponseDue = true;
    const items = new Set([...ids, ...itemsOf(this.view, new Set(collections))]);
    this.#dueItems.addOwn(items);
    this.markBehind(true);
  }

  protected markBehind(behind: boolean): void {
    if (this.#behind === behind) return;
    this.#behind = behind;
    this.view.behind += behind ? 1 : -1;
  }

  /** The response that moves the cursor to the head; undefined if there is nothing to say. */
  protected takeChanges(defers: Defers): Frame | undefined {
    const awaitsFirstAnswer = this.awaitsFirstAnswer();
    const { frame, deferredRemovals } = this.#composed(defers);
    if (frame === undefined && awaitsFirstAnswer) return undefined;
    this.deferredRemovals = deferredRemovals;
    this.advance();
    return frame;
  }

  protected advance(): void {
    const { view } = this;
    const old = this.position?.view;
    if (this.position === undefined || old !== view) {
      this.position = { view, revision: view.head, generation: view.generation };
    } else {
      this.#coalesced += Math.max(0, view.generation - this.position.generation - 1);
      this.position.revision = view.head;
      this.position.generation = view.generation;
    }
    this.#dueItems.clear();
    if (this.#firstResponseDue && view.collectionsResolved) this.#firstResponseDue = false;
    this.markBehind(this.deferredRemovals !== undefined);
    view.dropHistory();
    if (old === undefined || old === view) return;
    old.anchored.delete(this);
    this.leave(old);
  }

  /** Nothing is new, except that deferred removals may be sent now. */
  protected onlyDeferredRemovals(): boolean {
    return (
      this.deferredRemovals !== undefined &&
      this.positionIn(this.view) === this.view.head &&
      this.#dueItems.current === undefined
    );
  }

  /** A wildcard's first response is due, whatever is in it, but the wildcard is not resolved yet. */
  protected awaitsFirstAnswer(): boolean {
    return this.#firstResponseDue && !this.view.collectionsResolved;
  }

  /** Only this client has to be sent this: other cursors at its position get another response. */
  protected needsOwnResponse(): boolean {
    return this.position !== undefined && this.position.view !== this.view;
  }

  protected mustSendEmpty(): boolean {
    return this.#firstResponseDue && this.view.collectionsResolved;
  }

  #composed(defers: Defers): Composed {
    if (this.needsOwnResponse()) {
      const resources = this.clientResources();
      const changes = Array.from(this.view.items.values(), (item) => this.changeOf(item, resources));
      const own = (removed: RetainedResource): boolean => this.#defers(removed, defers);
      return this.compose(this.ownInput(this.#input(own), resources), changes);
    }
    const { view, encoding } = this;
    const from = this.position === undefined ? -1 : this.position.revision;
    const deferred = this.#deferred(from, defers);
    const step: CursorStep = {
      from,
      resend: this.#dueItems.current,
      deferred: deferred === none ? '' : [...deferred].join(' '),
      deferredBefore: this.deferredRemovals,
      firstResponseDue: this.mustSendEmpty(),
      encoding,
    };
    const { isOwn } = this.#dueItems;
    const known = isOwn ? undefined : view.frames.find(step, this.responses.lastSerial);
    if (known !== undefined) return known;
    const changes = changesSince(view, step.from, step.resend?.items);
    const isDeferred = ({ item }: RetainedResource): boolean => deferred.has(item.id);
    const composed = this.#pool.timed(() => this.compose(this.#input(isDeferred), changes));
    if (!isOwn && composed.frame?.timeDependent !== true && view.isShared) view.frames.add(step, composed);
    return composed;
  }

  /** Ids of the removals that are deferred, of those since a revision and of what earlier responses deferred. */
  #deferred(from: number, defers: Defers): ReadonlySet<string> {
    if (defers === defersNothing || from < 0) return none;
    const since = this.view.references.removedSince(from);
    // Nearly always: this is on the way of each update to each client.
    if (since.length === 0 && this.deferredRemovals === undefined) return none;
    const ids = new Set<string>();
    for (const removed of since) if (this.#defers(removed, defers)) ids.add(removed.item.id);
    for (const [id, removed] of this.deferredRemovals ?? []) if (this.#defers(removed, defers)) ids.add(id);
    return ids;
  }

  /** What the client may not see any more goes at once. */
  #defers({ item, variant, deferredAt: since }: RetainedResource, defers: Defers): boolean {
    return (
      defers !== defersNothing &&
      this.view.permitted.admits(variant, item.parameters) &&
      defers({ spelling: item.spelling, variant, since })
    );
  }

  /** The input for a response that only this client gets. */
  protected ownInput(input: CompositionInput, resources: ClientResources | undefined): CompositionInput {
    if (resources === undefined) return { ...input, allItems: true };
    // What was deferred, and what a wildcard or glob of the view no longer shows.
    const retained = removalsIn(resources, this.view);
    for (const [id, entry] of this.deferredRemovals ?? []) retained.set(id, entry);
    return { ...input, allItems: true, deferredRemovals: retained.size > 0 ? retained : undefined };
  }

  protected changeOf(item: Item, resources: ClientResources | undefined): Change {
    return {
      item,
      now: item.last.value,
      lastSent: resources?.get(item.id)?.variant ?? this.lastSent(item.id),
      clientVersion: undefined,
      resend: this.#dueItems.has(item.id),
    };
  }

  #input(defers: (removed: RetainedResource) => boolean): CompositionInput {
    const { position, view } = this;
    return {
      view,
      encoding: this.encoding,
      now: this.#pool.now(),
      controlPlane: this.#pool.controlPlane,
      allItems: false,
      headAt: position?.view === view && position.revision < view.head ? view.headAt : undefined,
      errorsSentUpTo: (item) => (position === undefined ? -1 : errorsSentUpTo(position, view, item)),
      defers,
      deferredRemovals: this.deferredRemovals,
      firstResponseDue: this.mustSendEmpty(),
      mustRemove: [],
    };
  }

  /** Resources of earlier views whose state is unknown in this view. Delta only. */
  protected get carriedOver(): ClientResources | undefined {
    return undefined;
  }

  /** What the client has and its position in the view does not show. */
  protected clientResources(): ClientResources | undefined {
    if (this.position === undefined || this.position.view === this.view) return this.carriedOver;
    return clientResourcesOf(this.position, this.view, this.carriedOver);
  }

  #takeNackRetry(): Frame | undefined {
    if (!this.takesParts) this.#nackRetries.clear(); // the complete state has it
    for (;;) {
      const change = this.#nackRetries.next(this.view, (id) => this.lastSent(id));
      if (change === undefined) return undefined;
      const { frame } = this.compose(retryInput(this.#input(() => false)), [change]);
      if (frame !== undefined) return frame;
    }
  }

  /** What the client was last sent of an item, by its position. */
  protected lastSent(id: string): Value | undefined {
    return this.position === undefined ? undefined : lastSentIn(this.position, this.carriedOver, id);
  }
}

/** The items that are sent next even if the client has them. Cursors with one object share the response. */
class DueItems {
  #items: ResendItems | undefined;
  #isOwn = false;

  get current(): ResendItems | undefined {
    return this.#items;
  }

  /** No other cursor has this object. */
  get isOwn(): boolean {
    return this.#isOwn;
  }

  has(id: string): boolean {
    return this.#items?.items.has(id) === true;
  }

  add(added: ResendItems): void {
    if (this.#items === added) return;
    if (this.#items === undefined) this.#items = added;
    else this.addOwn(added.items);
  }

  /** What one client alone asked for again. */
  addOwn(ids: ReadonlySet<string>): void {
    this.#items = resendItems(this.#items === undefined ? ids : ids.union(this.#items.items));
    this.#isOwn = true;
  }

  clear(): void {
    this.#items = undefined;
    this.#isOwn = false;
  }
}
