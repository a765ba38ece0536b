import type { Access } from '../model/access.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { entryId, itemId, type Selection, type SelectionEntry } from '../model/selection.ts';
import {
  type Encoding,
  type Holding,
  type ResendItems,
  resendItems,
  type Subscription,
} from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import { changesSince } from './changes-since.ts';
import {
  type Absences,
  absentIn,
  type ClientResources,
  clientResourcesOf,
  errorsToldUpTo,
  lastSentIn,
  removalsIn,
  selectedOf,
  unknownAgainIn,
  unresolvedIn,
} from './client-resources.ts';
import { hasEverything, removedWhileAway } from './client-versions.ts';
import { type Change, type CompositionInput, composeDelta, composeSotw } from './compose.ts';
import { itemsOf } from './coverage.ts';
import type { Composed, CursorStep, Frame, RetainedResource } from './frame.ts';
import { holding } from './item.ts';
import { changeToResend, type RejectedChange, rejectedChanges } from './nack-retries.ts';
import { Outstanding } from './outstanding.ts';
import { RequiredAnswers } from './required-answers.ts';
import type { View, ViewSubscriber } from './view.ts';
import type { ViewPool } from './view-pool.ts';

const none: readonly never[] = [];

/**
 * One client's subscription to a view: its cursor, and what must be sent in addition to the changes since the cursor.
 */
export class ViewSubscription implements Subscription, ViewSubscriber {
  encoding: Encoding;
  /** Told when there may be something to take. */
  readonly wake: () => void;
  readonly #pool: ViewPool;
  #view: View;
  /** The position of the client: the revision of a view that it was last sent. Undefined: nothing was sent yet. */
  #position: { view: View; revision: number; generation: number; absent?: Absences } | undefined;
  #coalesced = 0;
  /** Delta only. */
  readonly #requiredAnswers = new RequiredAnswers();
  /** Resources of earlier views whose state is unknown in this view. Delta only. */
  #carriedOver: ClientResources | undefined;
  #behind = false;
  #resendItems: ResendItems | undefined;
  #clientVersions: Map<string, string> | undefined;
  #clientContentVersion: string | undefined;
  #deferredRemovals: ReadonlyMap<string, RetainedResource> | undefined;
  #nackRetries: RejectedChange[] | undefined;
  /** Names that it held before this stream: their absence deletes (protocol §3.9). */
  #possiblyHeld: ReadonlySet<string> | undefined;
  readonly #outstanding = new Outstanding();
  #lastSerial = 0;
  #responded = false;
  #waitForAll = false;
  /** A wildcard or glob was added: its first response is sent even if it is empty. */
  #firstResponseDue: boolean;

  constructor(pool: ViewPool, encoding: Encoding, selection: Selection, access: Access, wake: () => void) {
    this.#pool = pool;
    this.encoding = encoding;
    this.wake = wake;
    this.#firstResponseDue = selection.hasCollection;
    this.#view = pool.view(selection, access);
    this.#view.subscribers.add(this);
    this.#expectGlobs(selection.collections);
    this.#markBehind(true);
  }

  get selection(): Selection {
    return this.#view.selection;
  }

  get size(): number {
    return this.#view.items.size;
  }

  get cold(): boolean {
    return this.#view.cold;
  }

  get pending(): boolean {
    return this.#nackRetries !== undefined || (this.#behind && !this.#onlyDeferredRemovals());
  }

  get due(): boolean {
    return (
      this.#nackRetries !== undefined || (this.pending && !this.#withheld() && !this.#awaitsFirstAnswer())
    );
  }

  get responded(): boolean {
    return this.#responded;
  }

  /** The revision that the client stands on in a view; undefined if it stands elsewhere, or nowhere yet. */
  positionIn(view: View): number | undefined {
    return this.#position?.view === view ? this.#position.revision : undefined;
  }

  waitForAll(): void {
    this.#waitForAll = true;
  }

  setPossiblyHeld(names: ReadonlySet<string>): void {
    this.#possiblyHeld = names;
  }

  setInitialVersions(versions: ReadonlyMap<string, string>): void {
    this.#clientVersions = new Map(versions);
  }

  setContentVersion(version: string): void {
    this.#clientContentVersion = version;
  }

  *holdings(): Iterable<Holding> {
    for (const [id, item] of this.#view.items) yield holding(item, this.#lastSent(id));
  }

  takeCoalesced(): number {
    const count = this.#coalesced;
    this.#coalesced = 0;
    return count;
  }

  select(
    selection: Selection,
    access: Access,
    again: ReadonlySet<string>,
    answer: readonly SelectionEntry[],
  ): void {
    if (this.#view.access.key !== access.key || !this.#view.selection.equals(selection))
      this.#move(selection, access);
    if (again.size > 0) this.#resendSelected(again);
    if (answer.length === 0) return;
    for (const selected of answer) this.#requiredAnswers.add(selected);
    this.#markBehind(true);
  }

  #move(selection: Selection, access: Access): void {
    const old = this.#view;
    if (this.encoding.protocol === 'delta') this.#anchorIn(old);
    this.#firstResponseDue = selection.collections.some(
      (selected) => this.#firstResponseDue || !old.selection.has(entryId(selected)),
    );
    this.#expectGlobs(selection.collections.filter((selected) => !old.selection.has(entryId(selected))));
    this.#markBehind(false);
    this.#view = this.#pool.view(selection, access, old.selection);
    this.#view.subscribers.add(this);
    this.#view.anchored.delete(this);
    this.#markBehind(true);
    if (this.#position?.view === old) old.anchored.add(this);
    old.subscribers.delete(this);
    this.#leave(old);
  }

  /**
   * Leaves a view before any response was sent from it. What the client unsubscribed when it moved to that view is
   * dropped at the client, even if it subscribes to it again (protocol §4.5).
   */
  #anchorIn(view: View): void {
    const base = this.#position;
    if (base === undefined || base.view === view) return;
    this.#carriedOver = selectedOf(clientResourcesOf(base, view, this.#carriedOver), view);
    this.#position = { view, revision: -1, generation: view.generation, absent: absentIn(base, view) };
    base.view.anchored.delete(this);
    this.#leave(base.view);
  }

  resend(added: ResendItems): void {
    if (this.#resendItems === added) return;
    for (const id of added.items) {
      if (!isVariant(this.#lastSent(id))) continue; // what it does not hold is sent anyway
      this.#resendItems =
        this.#resendItems === undefined ? added : resendItems(added.items.union(this.#resendItems.items));
      this.#markBehind(true);
      return;
    }
  }

  #resendSelected(ids: ReadonlySet<string>): void {
    const { selection } = this.#view;
    const collections = selection.collections.filter((selected) => ids.has(entryId(selected)));
    this.#expectGlobs(collections);
    // An answer is due, though it be empty.
    if (collections.some(({ selector }) => selector === WILDCARD)) this.#firstResponseDue = true;
    const items = new Set([...ids, ...itemsOf(this.#view, new Set(collections))]);
    this.#resendItems = resendItems(
      this.#resendItems === undefined ? items : items.union(this.#resendItems.items),
    );
    this.#markBehind(true);
  }

  /** Whether the version in the client's first request shows that it has everything visible (CONTENT). */
  #hasEverything(): boolean {
    const has =
      this.#clientContentVersion !== undefined && hasEverything(this.#view, this.#clientContentVersion);
    this.#clientContentVersion = undefined;
    if (has) this.#responded = true;
    return has;
  }

  get hasDeferredRemovals(): boolean {
    return this.#deferredRemovals !== undefined;
  }

  take(keepRemoved: boolean): Frame | undefined {
    if (!this.#behind && this.#nackRetries === undefined) return undefined;
    if (this.#nackRetries !== undefined) {
      const alone = this.#takeNackRetry();
      if (alone !== undefined) return this.#markSent(alone);
    }
    if (!this.#behind || this.#withheld()) return undefined;
    if (this.#hasEverything()) {
      this.#advance();
      return undefined;
    }
    const pending = this.#awaitsFirstAnswer();
    const claims = pending && this.#clientVersions !== undefined ? new Map(this.#clientVersions) : undefined;
    const { frame, deferredRemovals } = this.#compose(keepRemoved);
    if (frame === undefined && pending) {
      if (claims !== undefined) this.#clientVersions = claims; // nothing was said: they are as open as before
      return undefined;
    }
    this.#deferredRemovals = deferredRemovals;
    this.#advance();
    return frame === undefined ? undefined : this.#markSent(frame);
  }

  ack(serial: number): boolean {
    return this.#outstanding.answered(serial) !== undefined;
  }

  /**
   * A rejected response is not sent again as it was. Envoy rejects {a invalid, b valid} whole: each resource goes out
   * once more, alone (protocol §3.12).
   */
  nack(serial: number): boolean {
    const rejected = this.#outstanding.answered(serial);
    if (rejected === undefined) return false;
    const whole = this.encoding.protocol === 'sotw' && this.#view.complete;
    const parts = whole ? [] : rejectedChanges(rejected);
    if (parts.length > 0) this.#nackRetries = [...(this.#nackRetries ?? []), ...parts];
    return true;
  }

  close(): void {
    this.#markBehind(false);
    const anchor = this.#position?.view;
    this.#position = undefined;
    anchor?.anchored.delete(this);
    this.#view.subscribers.delete(this);
    this.#leave(this.#view);
    if (anchor !== undefined && anchor !== this.#view) this.#leave(anchor);
  }

  /** The view changed. */
  invalidated(): void {
    this.#markBehind(true);
  }

  #markBehind(behind: boolean): void {
    if (this.#behind === behind) return;
    this.#behind = behind;
    this.#view.behind += behind ? 1 : -1;
  }

  #markSent(frame: Frame): Frame {
    this.#responded = true;
    this.#lastSerial = frame.serial;
    this.#outstanding.sent(frame.serial, frame.changes, this.encoding.protocol === 'sotw');
    return frame;
  }

  #advance(): void {
    const view = this.#view;
    const old = this.#position?.view;
    this.#carriedOver = this.#stillUnresolved();
    this.#requiredAnswers.dropAnswered(view);
    if (this.#position === undefined || old !== view) {
      this.#position = { view, revision: view.head, generation: view.generation };
    } else {
      this.#coalesced += Math.max(0, view.generation - this.#position.generation - 1);
      this.#position.revision = view.head;
      this.#position.generation = view.generation;
    }
    this.#resendItems = undefined;
    this.#possiblyHeld = undefined;
    if (this.#firstResponseDue && view.collectionsResolved) this.#firstResponseDue = false;
    this.#markBehind(this.#deferredRemovals !== undefined || this.#clientVersions !== undefined);
    view.dropHistory();
    if (old === undefined || old === view) return;
    old.anchored.delete(this);
    this.#leave(old);
  }

  #leave(view: View): void {
    if (view.subscribers.size === 0 && view.anchored.size === 0) this.#pool.retire(view);
    else view.dropHistory();
  }

  /** Nothing is new, except that deferred removals may be sent now. */
  #onlyDeferredRemovals(): boolean {
    return (
      this.#deferredRemovals !== undefined &&
      this.positionIn(this.#view) === this.#view.head &&
      this.#resendItems === undefined &&
      this.#clientVersions === undefined &&
      this.#requiredAnswers.empty
    );
  }

  /**
   * Nothing is deleted while its state is unknown (§3.9). Delta: if the parameters of a client change, it may lose
   * resources of a wildcard or glob. It keeps all of them until the wildcard is resolved, and then gets all changes
   * in one response.
   */
  #withheld(): boolean {
    const view = this.#view;
    if (this.encoding.protocol === 'delta') {
      if (this.#waitForAll && !this.#responded && !view.collectionsResolved) return true;
      const from = this.#position?.view;
      if (from === undefined || from === view || view.collectionsResolved) return false;
      return view.selection.collections.some((selected) => from.selection.has(entryId(selected)));
    }
    if (!view.complete) return false;
    if (!view.collectionsResolved) return true;
    for (const item of view.unresolvedNames) {
      if (this.#possiblyHeld?.has(item.spelling) === true || isVariant(this.#lastSent(item.id))) return true;
    }
    return false;
  }

  /** A wildcard's first response is due, whatever is in it, but the wildcard is not answered yet. */
  #awaitsFirstAnswer(): boolean {
    return this.#firstResponseDue && !this.#view.collectionsResolved;
  }

  #isFirstResponseDue(): boolean {
    return this.#firstResponseDue && this.#clientVersions === undefined && this.#view.collectionsResolved;
  }

  #compose(deferRemovals: boolean): Composed {
    const base = this.#position;
    const view = this.#view;
    const simple =
      (base === undefined || base.view === view) &&
      this.#clientVersions === undefined &&
      this.#deferredRemovals === undefined &&
      this.#carriedOver === undefined &&
      this.#requiredAnswers.empty;
    if (!simple) return this.#composeOwn(this.#composition(deferRemovals));
    const step: CursorStep = {
      from: base === undefined ? -1 : base.revision,
      resend: this.#resendItems,
      deferRemovals,
      firstResponseDue: this.#isFirstResponseDue(),
      encoding: this.encoding,
    };
    const known = view.frames.find(step, this.#lastSerial);
    if (known !== undefined) return known;
    const composed = this.#composeWith(
      this.#composition(deferRemovals),
      changesSince(view, step.from, this.#resendItems?.items),
    );
    if (composed.frame?.timeDependent !== true) view.frames.add(step, composed);
    return composed;
  }

  #composition(deferRemovals: boolean): CompositionInput {
    const base = this.#position;
    return {
      view: this.#view,
      encoding: this.encoding,
      now: this.#pool.now(),
      controlPlane: this.#pool.controlPlane,
      newcomer: base?.view !== this.#view,
      errorsToldUpTo: (item) => (base === undefined ? -1 : errorsToldUpTo(base, this.#view, item)),
      deferRemovals,
      deferredRemovals: this.#deferredRemovals,
      removals: none,
      firstResponseDue: this.#isFirstResponseDue(),
      lastSerial: this.#lastSerial,
    };
  }

  #composeWith(parts: CompositionInput, changes: Iterable<Change>): Composed {
    return this.encoding.protocol === 'sotw' ? composeSotw(parts, changes) : composeDelta(parts, changes);
  }

  /** Composes a response for this client only: it comes from another view, or sent initial_resource_versions. */
  #composeOwn(parts: CompositionInput): Composed {
    const changes: Change[] = [];
    const answered = new Set<string>();
    const holdings = this.#clientResources();
    for (const item of this.#view.items.values()) {
      const clientVersion = this.#clientVersions?.get(item.spelling);
      const resend = this.#resendItems?.items.has(item.id) === true || this.#requiredAnswers.has(item.id);
      const lastSent = holdings?.get(item.id)?.variant ?? this.#lastSent(item.id);
      changes.push({ item, now: item.last.value, lastSent, clientVersion, resend });
      if (clientVersion !== undefined && item.last.value !== 'unknown') answered.add(item.spelling);
    }
    for (const name of answered) this.#clientVersions?.delete(name);
    return this.#composeWith(
      { ...parts, deferredRemovals: this.#deferredAndRemoved(holdings), removals: this.#removalsToAnswer() },
      changes,
    );
  }

  /** What it holds that its cursor in the view does not tell. */
  #clientResources(): ClientResources | undefined {
    if (this.#position === undefined || this.#position.view === this.#view) return this.#carriedOver;
    return clientResourcesOf(this.#position, this.#view, this.#carriedOver);
  }

  #stillUnresolved(): ClientResources | undefined {
    if (this.encoding.protocol === 'sotw') return undefined;
    const view = this.#view;
    const stays = this.#position?.view === view && view.unknownAgain.size > 0 ? this.#position : undefined;
    const holdings = stays === undefined ? this.#clientResources() : unknownAgainIn(stays, this.#carriedOver);
    return holdings === undefined ? undefined : unresolvedIn(holdings, view);
  }

  /** What was kept back, and what a wildcard or glob of the view no longer shows. */
  #deferredAndRemoved(
    holdings: ClientResources | undefined,
  ): ReadonlyMap<string, RetainedResource> | undefined {
    if (holdings === undefined) return this.#deferredRemovals;
    const retained = removalsIn(holdings, this.#view);
    for (const [id, entry] of this.#deferredRemovals ?? none) retained.set(id, entry);
    return retained.size > 0 ? retained : undefined;
  }

  #expectGlobs(collections: readonly SelectionEntry[]): void {
    if (this.encoding.protocol === 'delta') this.#requiredAnswers.addGlobs(collections);
  }

  #removalsToAnswer(): CompositionInput['removals'] {
    const gone = this.#removedWhileAway().map((name) => ({
      id: itemId(false, NO_PARAMETERS, name),
      name,
      locator: false,
    }));
    for (const [id, selected] of this.#requiredAnswers.absentIn(this.#view)) {
      gone.push({ id, name: selected.spelling, locator: selected.locator });
    }
    return gone;
  }

  /** Claimed, covered by an answered wildcard, and not there: gone while the client was away (protocol §4.1). */
  #removedWhileAway(): readonly string[] {
    const view = this.#view;
    if (this.#clientVersions === undefined || !view.collectionsResolved) return none;
    const gone = removedWhileAway(view, this.#clientVersions.keys());
    if (view.unresolvedNames.size === 0) this.#clientVersions = undefined;
    for (const name of gone) this.#clientVersions?.delete(name);
    return gone;
  }

  #takeNackRetry(): Frame | undefined {
    if (this.encoding.protocol === 'sotw' && this.#view.complete) this.#nackRetries = undefined; // it goes with the whole
    while (this.#nackRetries !== undefined) {
      const part = this.#nackRetries.shift();
      if (this.#nackRetries.length === 0) this.#nackRetries = undefined;
      const change =
        part === undefined ? undefined : changeToResend(part, this.#view, this.#lastSent(part.item.id));
      if (change === undefined) continue;
      const parts: CompositionInput = {
        ...this.#composition(false),
        newcomer: true,
        errorsToldUpTo: () => this.#view.head,
        deferredRemovals: undefined,
        firstResponseDue: false,
      };
      const { frame } = this.#composeWith(parts, [change]);
      if (frame !== undefined) return frame;
    }
    return undefined;
  }

  /** What the client was last sent of an item, by the cursor. */
  #lastSent(id: string): Value | undefined {
    return this.#position === undefined ? undefined : lastSentIn(this.#position, this.#carriedOver, id);
  }
}
