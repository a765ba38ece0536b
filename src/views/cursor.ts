import type { Access } from '../model/access.ts';
import type { ResourceName } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Reference, References } from '../model/resource.ts';
import { entryId, itemId, noIds, type Selection, type SelectionEntry, withIds } from '../model/selection.ts';
import {
  type AnswerKind,
  type ClientError,
  type Defers,
  defersNothing,
  type EarlierState,
  type Encoding,
  type Holding,
  type ItemState,
  type MissingEntry,
  type ResendItems,
  type Response,
  type Subscriber,
  type Subscription,
} from '../model/subscription.ts';
import type { Payer } from '../model/time-slices.ts';
import { WILDCARD } from '../model/transaction.ts';
import { isGlob } from '../model/xdstp.ts';
import {
  changeToResend,
  hasExpired,
  leavesDoubtful,
  type RejectedChange,
  rejectedChanges,
  shownOf,
  withDoubts,
} from './changes.ts';
import { bytesOfGone, Claims, nothingCovered } from './claims.ts';
import { type CompositionInput, compose, contentVersionOf, showsAll, showsTtls } from './composition.ts';
import { holdings, type Item } from './item.ts';
import {
  answersIn,
  awaitedAtHead,
  type Due,
  itemsOf,
  Position,
  referencesOfAll,
  unknownIn,
} from './position.ts';
import { notSent, type SentItems, SentResponses } from './sent-responses.ts';
import {
  beforeAll,
  type Composed,
  type CursorStep,
  type EncodedResponse,
  fromNothing,
  type Overlay,
  type RetainedResource,
} from './shared-responses.ts';
import type { View, ViewSubscriber } from './view.ts';
import type { ViewPool } from './view-pool.ts';

const none: readonly never[] = [];

/**
 * One client's subscription to a view: the position of the client, what it has that the position does not say, and what
 * is due to it besides the changes since then. `#reconcile` makes the response of that. Clients with the same position and
 * overlay share it, unless something is due to one of them. SotW and delta differ in how a response is written, and in what
 * its absence says: a complete SotW state leaves the client nothing but what it was sent to keep.
 */
export class Cursor implements Subscription, ViewSubscriber, SentItems {
  encoding: Encoding;
  readonly responses: SentResponses;
  readonly wake: () => void;
  payer: Payer | undefined;
  readonly polls: Subscriber['polls'];
  readonly #pool: ViewPool;
  readonly #isDelta: boolean;
  view: View;
  /** What the client was last sent. Undefined: nothing was sent yet. */
  #position: Position | undefined;
  #claims: Claims | undefined;
  /** For this client alone: no other one gets its next response. */
  #due: Due | undefined;
  /** Sent next even if the client has it. Cursors with one object share the response. */
  #resend: ResendItems | undefined;
  /** Its view has changed since, or its client has asked for more. */
  #isBehind = false;
  /** Some of its overlay is there because a removal was deferred, which may go by now. */
  hasDeferredRemovals = false;
  /** Changes of rejected responses that are sent once more, each by itself: the next one is last. */
  #retries: RejectedChange[] | undefined;
  /** When the update arrived that it answered last. */
  #answeredAt: number | undefined;
  /** Wildcards and globs, by their ids, whose first response is due: it is sent even if it is empty. */
  #awaited: ReadonlySet<string>;
  #coalesced = 0;
  resumed = false;
  /** What the first request said, until a response has covered it. */
  #earlier: EarlierState | undefined;
  #waitForAll = false;
  /** SotW: its version showed that it had everything. */
  #hadEverything = false;
  /** What its peer pays. */
  #earlierBytes = 0;

  constructor(
    pool: ViewPool,
    encoding: Encoding,
    selection: Selection,
    access: Access,
    { wake, payer, polls }: Subscriber,
  ) {
    this.#pool = pool;
    this.encoding = encoding;
    this.#isDelta = encoding.protocol === 'delta';
    this.responses = new SentResponses(this, this.#isDelta);
    this.wake = wake;
    this.payer = payer;
    this.polls = polls;
    this.#awaited = withIds(noIds, selection.collections);
    this.view = pool.view(selection, access, polls === 'client' ? selection : undefined);
    this.view.join(this);
    this.#fallBehind();
    this.#oweGlobs(selection.collections);
  }

  get owed(): readonly SelectionEntry[] {
    const owed = [...(this.#due?.values() ?? none)].filter((one) => one !== undefined);
    return owed.filter((one) => !this.view.selection.has(entryId(one)));
  }

  get pending(): boolean {
    return this.#retries !== undefined || this.#claims !== undefined || this.#isBehind;
  }

  get due(): boolean {
    // A wildcard that is added later holds up nothing: what changes beside it is due.
    const awaits = this.#position === undefined && this.#awaitsFirstAnswer();
    return this.#retries !== undefined || (this.#isBehind && !this.#isHeldBack() && !awaits);
  }

  /** What a SotW client has from an earlier stream is as good as a response. */
  get responded(): boolean {
    return this.#hadEverything || this.responses.lastNonce !== undefined;
  }

  get hasState(): boolean {
    return this.resumed || this.responded;
  }

  refersTo(reference: Reference): boolean {
    if (this.view.referencesAt(this.view.head).has(reference)) return true;
    // What the client has and the view does not show.
    const overlay = this.#position?.overlay;
    return overlay !== undefined && referencesOfAll(overlay).has(reference);
  }

  newReferences(): References {
    if (this.#position !== undefined) return this.#position.newReferencesIn(this.view);
    // What it led to on an earlier stream is not known. In SotW it may be sent again although it has not changed.
    return this.resumed && (this.#isDelta || this.polls === 'client')
      ? this.view.referencesAt(this.view.head)
      : new Set();
  }

  has(name: ResourceName): boolean {
    const view = this.view;
    return (
      view.forms.some(({ locator, parameters }) => this.#has(itemId(locator, parameters, name))) ||
      view.respelled(name).some(({ id }) => this.#has(id))
    );
  }

  positionIn(view: View): number | undefined {
    return this.#position?.view === view ? this.#position.revision : undefined;
  }

  holdings(): Iterable<Holding> {
    return holdings(this.view.items.values(), this.responses.itemStates(), (id) => this.#lastSent(id));
  }

  holdingsOf(version: string, said: ItemState): Iterable<Holding> {
    const { items } = this.view;
    const isCurrent = version === this.contentVersion;
    const lastSent = (id: string): Value | undefined => (isCurrent ? items.get(id)?.last.value : undefined);
    return holdings(items.values(), (_, sent) => (isCurrent && !isVariant(sent) ? notSent : said), lastSent);
  }

  get contentVersion(): string {
    return contentVersionOf(this.view);
  }

  get kept(): EncodedResponse | undefined {
    return this.view.shown.shared.find({ ...fromNothing, encoding: this.encoding }, beforeAll)?.response;
  }

  whole(isKept: boolean): EncodedResponse {
    const { kept } = this;
    if (kept !== undefined) return kept;
    // What differs by names that nobody has is one response.
    const view = this.view.shown;
    const step = { ...fromNothing, encoding: this.encoding };
    const composed = compose({ ...this.#input(none), view, firstResponseDue: true });
    // A first response is composed even if it is empty.
    if (composed.response === undefined) throw new Error('a first response that is due was not composed');
    if (!composed.isOwn && (isKept || view.isShared)) view.shared.add(step, composed);
    this.view.dropHistory();
    return composed.response;
  }

  share(): void {
    this.payer = undefined;
    this.view.join(this);
  }

  get missing(): readonly MissingEntry[] {
    return this.view.missing;
  }

  get isAlone(): boolean {
    if (!this.view.isShared || this.#hasOwnStep || this.#retries !== undefined) return true;
    // What it has besides, nobody else may have (`SharedResponses.holds`).
    if (this.#position?.overlay !== undefined) return true;
    // What follows a rejection, or says what remains of a TTL, is not kept for others.
    return this.responses.state === 'ERROR' || (this.encoding.ttl && showsTtls(this.view));
  }

  isShared(response: Response): boolean {
    return this.view.shared.holds(response);
  }

  takeCoalesced(): number {
    const count = this.#coalesced;
    this.#coalesced = 0;
    return count;
  }

  resume(earlier: EarlierState): void {
    const { possiblyHeld, initialVersions, waitForAll = false } = earlier;
    this.#earlier = earlier;
    this.#waitForAll = waitForAll;
    this.#claims = initialVersions && new Claims(initialVersions);
    this.resumed = possiblyHeld !== undefined || (initialVersions !== undefined && initialVersions.size > 0);
    this.#payForEarlier();
  }

  select(
    selection: Selection,
    access: Access,
    again: ReadonlySet<string>,
    mustAnswer: readonly SelectionEntry[],
  ): void {
    const { access: before, selection: old } = this.view;
    if (before.key !== access.key || !old.equals(selection)) this.#move(selection, access);
    if (again.size > 0) {
      this.#selectAgain(again);
      // What it subscribes to again it may have dropped.
      if (this.#isDelta && this.responses.awaitsAnswer && this.#position?.view !== this.view)
        this.#position?.addOutstanding(this.responses.outstandingAdditions(), this.view);
    }
    this.#owe(mustAnswer);
    if (mustAnswer.length > 0) this.#fallBehind();
  }

  resend(canonical: ResendItems): void {
    const added = shownOf(this.view, canonical);
    this.#claims?.resend(this.view, added);
    this.#oweUnknown(added);
    const empty = this.view.selection.collections.filter((one) => added.has(entryId(one)));
    this.#oweGlobs(empty);
    if (empty.length > 0) this.#fallBehind();
    // What the client does not have is sent anyway.
    if (!added.values().some((id) => isVariant(this.#lastSent(id)))) return;
    if (this.#resend === undefined) this.#resend = added;
    else if (this.#resend !== added) this.#resendAlone(added);
    this.#fallBehind();
  }

  take(defers: Defers, mostBytes = Number.POSITIVE_INFINITY): EncodedResponse | undefined {
    let response = this.#retries === undefined ? undefined : this.#takeRetry();
    if (response === undefined && (this.#isBehind || this.hasDeferredRemovals) && !this.#isHeldBack())
      response = this.#takeChanges(defers, mostBytes);
    if (response !== undefined) this.responses.sent(response.sent);
    return response;
  }

  /**
   * A rejected response is not sent again as it was. Envoy rejects {a invalid, b valid} whole: each resource goes out
   * once more, alone (protocol §3.12), also if a newer response has overtaken it.
   */
  answer(nonce: string, error: ClientError | undefined): AnswerKind {
    const kind = this.responses.classify(nonce, error !== undefined);
    if (kind === 'first' || kind === 'change') return kind;
    const answered = this.responses.answered(nonce, error);
    const receivedAt = answered?.header.receivedAt;
    if (kind !== 'stale' && this.polls === undefined && receivedAt !== undefined) {
      const isRepeated = receivedAt === this.#answeredAt;
      this.#pool.answered({ receivedAt, isAccepted: kind === 'ack', isRepeated });
      this.#answeredAt = receivedAt;
    }
    if (error !== undefined && answered !== undefined && this.#takesParts) {
      const changes = rejectedChanges(answered, this.encoding);
      if (changes.length > 0) this.#retries = [...changes.toReversed(), ...(this.#retries ?? none)];
      const position = this.#position;
      if (position?.overlay !== undefined)
        position.overlay = withDoubts(position.overlay, answered.additions);
    }
    return kind;
  }

  sentOf(id: string): Value | undefined {
    return this.view.items.has(id) ? this.#lastSent(id) : undefined;
  }

  get hasSomething(): boolean {
    if (this.#position === undefined) return false;
    return this.view.items.values().some(({ id }) => isVariant(this.#lastSent(id)));
  }

  close(): void {
    this.#claims = undefined;
    this.#catchUp();
    const anchor = this.#position?.view;
    this.#position = undefined;
    this.#payForEarlier();
    anchor?.release(this);
    this.view.quit(this);
    this.#pool.leave(this.view);
    if (anchor !== undefined && anchor !== this.view) this.#pool.leave(anchor);
  }

  /** The view changed. */
  invalidated(): void {
    this.#fallBehind();
  }

  /** Whether a response may hold a part of what the client subscribes to. A complete one deletes what is missing. */
  get #takesParts(): boolean {
    return this.#isDelta || !this.view.complete;
  }

  #move(selection: Selection, access: Access): void {
    const [old, base] = [this.view, this.#position];
    // It leaves a view before any response was sent from it.
    if (this.#isDelta && base !== undefined && base.view !== old) {
      this.#position = base.movedTo(old);
      base.view.release(this);
      this.#pool.leave(base.view);
    }
    const added = selection.collections.filter((selected) => !old.selection.has(entryId(selected)));
    const left = selection.collections.filter((selected) => this.#awaited.has(entryId(selected)));
    this.#awaited = withIds(noIds, [...left, ...added]);
    this.#catchUp();
    this.view = this.#pool.view(selection, access, old.selection);
    this.view.join(this);
    this.view.release(this);
    this.#fallBehind();
    if (this.#position?.view === old) old.anchor(this);
    old.quit(this);
    this.#pool.leave(old);
    // Of a glob that is unsubscribed nothing needs to be said.
    for (const one of this.owed) if (isGlob(one.selector)) this.#due?.delete(entryId(one));
    this.#oweGlobs(added);
  }

  /** The selected items with these ids, and what the wildcards and globs among them show, are sent again. */
  #selectAgain(ids: ReadonlySet<string>): void {
    const collections = this.view.selection.collections.filter((selected) => ids.has(entryId(selected)));
    this.#claims?.resend(this.view, ids);
    this.#awaited = withIds(
      this.#awaited,
      collections.filter(({ selector }) => selector === WILDCARD),
    );
    this.#resendAlone([...ids, ...itemsOf(this.view, new Set(collections))]);
    this.#fallBehind();
    this.#oweGlobs(collections);
    this.#oweUnknown(ids);
  }

  /** It has them, so nothing else would be sent once they are known again (protocol §4.2, §10.1). */
  #oweUnknown(ids: ReadonlySet<string>): void {
    if (this.#isDelta) this.#owe(unknownIn(this.view, ids).filter((one) => this.#has(entryId(one))));
  }

  #resendAlone(ids: Iterable<string>): void {
    this.#due ??= new Map();
    for (const id of ids) this.#due.set(id, this.#due.get(id));
  }

  /** The answer to an empty glob is its URL as removed (protocol §6). */
  #oweGlobs(collections: readonly SelectionEntry[]): void {
    if (this.#isDelta) this.#owe(collections.filter(({ selector }) => isGlob(selector)));
  }

  #owe(selected: readonly SelectionEntry[]): void {
    if (selected.length === 0) return;
    this.#due ??= new Map();
    for (const one of selected) this.#due.set(entryId(one), one);
  }

  #fallBehind(): void {
    if (this.polls === 'class' || this.#isBehind) return;
    this.#isBehind = true;
    this.view.behind++;
  }

  #catchUp(): void {
    if (!this.#isBehind) return;
    this.#isBehind = false;
    this.view.behind--;
  }

  /** Nothing is deleted at the client while its state is unknown (protocol §3.9). */
  #isHeldBack(): boolean {
    if (!this.#isDelta) return this.#waitsForState();
    const view = this.view;
    if (this.#waitForAll && !this.responded && !view.collectionsResolved) return true;
    return this.#position?.waitsForCollectionsOf(view, this.#awaited) === true;
  }

  /** Absence from a complete state deletes. */
  #waitsForState(): boolean {
    const { complete, collectionsResolved, unresolvedNames } = this.view;
    if (!complete) return false;
    if (!collectionsResolved) return true;
    if (this.encoding.unknownNames) return false;
    const isHeld = ({ id, requestedName }: Item): boolean =>
      this.#earlier?.possiblyHeld?.has(requestedName) === true || this.#has(id);
    return unresolvedNames.values().some(isHeld);
  }

  /** A wildcard's first response is due, whatever is in it, but the wildcard is not resolved yet. */
  #awaitsFirstAnswer(): boolean {
    return this.#awaited.size > 0 && !this.view.collectionsResolved;
  }

  #mustSendEmpty(): boolean {
    return this.#awaited.size > 0 && this.#claims?.skipsSome !== true && this.view.collectionsResolved;
  }

  #takeRetry(): EncodedResponse | undefined {
    if (!this.#takesParts) this.#retries = undefined; // the complete state has it
    while (this.#retries !== undefined) {
      const rejected = this.#retries.pop();
      if (this.#retries.length === 0) this.#retries = undefined;
      const change = rejected && changeToResend(rejected, this.view, this.#lastSent(rejected.item.id));
      const nothingElse = { position: undefined, overlay: undefined, firstResponseDue: false };
      const response = change && compose({ ...this.#input(none), ...nothingElse }, change).response;
      if (response !== undefined) return response;
    }
    return undefined;
  }

  /** The response that moves the cursor to the head; undefined if there is nothing to say. */
  #takeChanges(defers: Defers, mostBytes: number): EncodedResponse | undefined {
    if (this.#hasEverything()) {
      this.#hadEverything = true;
      this.#advance();
      return undefined;
    }
    const { response, isDeferring, overlay, untold, claims, due } = this.#reconcile(defers);
    if (isDeferring && response !== undefined && response.bytes.length > mostBytes)
      return this.#takeChanges(defersNothing, Number.POSITIVE_INFINITY);
    this.hasDeferredRemovals = isDeferring;
    // As if nobody had asked: what comes is a first state.
    if (response === undefined && !isDeferring && this.#position === undefined && this.#awaitsFirstAnswer()) {
      this.#catchUp();
      return undefined;
    }
    const news = response && this.responses.asNews(response);
    this.#advance(overlay, untold, claims, due);
    return news;
  }

  /** Whether the version in a SotW client's first request (CONTENT) shows that it has everything visible (§3.10). */
  #hasEverything(): boolean {
    const version = this.#earlier?.contentVersion;
    if (version === undefined) return false;
    this.#earlier = { ...this.#earlier, contentVersion: undefined };
    return showsAll(this.view, version);
  }

  #advance(overlay?: Overlay, untold?: ResendItems, claims?: Claims, due?: Due): void {
    const [view, old] = [this.view, this.#position?.view];
    this.#claims = claims;
    this.#due = due;
    this.#earlier = undefined;
    if (this.#position?.view === view) this.#coalesced += this.#position.advance(overlay, untold);
    else this.#position = new Position(view, view.head, overlay, untold);
    this.#resend = untold;
    if (this.#awaited.size > 0) this.#awaited = awaitedAtHead(view, this.#awaited);
    if (untold === undefined) this.#catchUp();
    else this.#fallBehind();
    view.dropHistory();
    if (old !== undefined && old !== view) {
      old.release(this);
      this.#pool.leave(old);
      this.responses.moved((id) => this.#lastSent(id));
    }
    this.#payForEarlier();
  }

  #payForEarlier(): void {
    const overlay = this.#position?.overlay;
    const bytes = (this.#claims?.bytes ?? 0) + (overlay === undefined ? 0 : bytesOfGone(overlay));
    if (bytes !== this.#earlierBytes) this.payer?.keeps(bytes - this.#earlierBytes);
    this.#earlierBytes = bytes;
  }

  /**
   * The response that moves the cursor to the head, of all that its client has and all that is due to it. For all cursors with
   * the same it is made once. Of one that no other cursor gets, what is due after it comes with it.
   */
  #reconcile(
    defers: Defers,
  ): Composed & { readonly claims?: Claims | undefined; readonly due?: Due | undefined } {
    const view = this.view;
    const deferred = this.#hasOwnStep ? undefined : this.#deferredIds(defers);
    const step = deferred && this.#step(deferred);
    const known = step && view.shared.find(step, this.responses.lastSerial);
    // Others are told the new TTL of what this client has rejected.
    if (known !== undefined && !this.responses.rejects(known)) return known;
    const covered = this.#claims?.coveredIn(view, (id) => this.#lastSent(id)) ?? nothingCovered;
    const { absent, left: due } = answersIn(this.#due, view);
    const from = this.#input(covered.kept);
    const { overlay } = from;
    const isHiding = this.#isDelta && overlay !== undefined ? leavesDoubtful(overlay, view) : () => false;
    const input = {
      ...from,
      defers: (one: RetainedResource) => deferred?.has(one.item.id) ?? this.#defers(one, defers),
      waits: (one: RetainedResource) => isHiding(one) && this.#mayStay(one),
      mustRemove: [...covered.named, ...absent],
    };
    const composed = this.#pool.timed(() => compose(input));
    if (step === undefined) return { ...composed, claims: covered.left, due };
    if (!composed.isOwn && view.isShared) view.shared.add(step, composed);
    return composed;
  }

  /** Nobody else stands where it does, or something is due to it alone. */
  get #hasOwnStep(): boolean {
    const isElsewhere = this.#position !== undefined && this.#position.view !== this.view;
    return isElsewhere || this.#claims !== undefined || this.#due !== undefined;
  }

  #step(deferred: ReadonlySet<string>): CursorStep {
    const { revision: from = -1, overlay } = this.#position ?? {};
    return {
      from,
      resend: this.#resend,
      deferred: deferred === noIds ? '' : JSON.stringify([...deferred]),
      overlay,
      firstResponseDue: this.#mustSendEmpty(),
      encoding: this.encoding,
    };
  }

  /** Ids of the removals that are deferred, of those since its position and of what earlier responses deferred. */
  #deferredIds(defers: Defers): ReadonlySet<string> {
    const removed = defers === defersNothing ? none : (this.#position?.removed ?? none);
    // Nearly always: this is on the way of each update to each client.
    if (removed.length === 0) return noIds;
    return new Set(removed.filter((one) => this.#defers(one, defers)).map(({ item }) => item.id));
  }

  #defers(one: RetainedResource, defers: Defers): boolean {
    if (defers === defersNothing || !this.#mayStay(one)) return false;
    return defers({ requestedName: one.item.requestedName, variant: one.variant, since: one.deferredAt });
  }

  /** What the client may not see any more goes at once, and what its own timer has ended is not sent again (§8.1). */
  #mayStay({ item, variant }: RetainedResource): boolean {
    const isOver = this.encoding.ttl && hasExpired(variant, this.#pool.options.clock.monotonic());
    return !isOver && this.view.admits(variant, item.parameters);
  }

  /** `kept`: what the client said that it has, and is gone. */
  #input(kept: readonly RetainedResource[]): CompositionInput {
    const [view, position, claims] = [this.view, this.#position, this.#claims];
    const beside = position?.besideIn(view);
    const ofEarlier = kept.map((one) => [one.item.id, one] as const);
    const isHere = position?.view === view && position.revision >= 0;
    return {
      view,
      position,
      overlay: kept.length === 0 ? beside : new Map([...ofEarlier, ...(beside ?? none)]),
      claims,
      resend: this.#resend,
      due: this.#due,
      encoding: this.encoding,
      now: this.#pool.options.clock.monotonic(),
      allItems: !isHere || claims !== undefined,
      responses: this.responses,
      controlPlane: this.#pool.options.controlPlane,
      defers: () => false,
      waits: () => false,
      firstResponseDue: this.#mustSendEmpty(),
      mustRemove: none,
    };
  }

  #has(id: string): boolean {
    return isVariant(this.#lastSent(id));
  }

  #lastSent(id: string): Value | undefined {
    return this.#position?.lastSent(id);
  }
}
