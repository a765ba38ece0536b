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
  type Change,
  changesSince,
  changeToResend,
  comingBack,
  hasExpired,
  type RejectedChange,
  rejectedChanges,
  shownOf,
  withDoubts,
} from './changes.ts';
import { bytesOfEarlier, Claims, nothingCovered } from './claims.ts';
import {
  type CompositionInput,
  composeDelta,
  composeSotw,
  contentVersionOf,
  retryInput,
  showsAll,
} from './composition.ts';
import { holdings, type Item, leavesDoubtful } from './item.ts';
import {
  answersIn,
  awaitedAtHead,
  deferredIn,
  deferredMeanwhile,
  itemsOf,
  Position,
  referencesOfAll,
  removalsIn,
  unknownIn,
} from './position.ts';
import { notSent, type SentItems, SentResponses } from './sent-responses.ts';
import {
  beforeAll,
  type Composed,
  type EncodedResponse,
  fromNothing,
  type RetainedResource,
} from './shared-responses.ts';
import type { View, ViewSubscriber } from './view.ts';
import type { ViewPool } from './view-pool.ts';

const none: readonly never[] = [];
/** The response that moves a cursor to the head, and what the client has then that the head does not say. */
interface Move extends Composed {
  readonly overlay: Position['overlay'];
  readonly claims: Claims | undefined;
  readonly owed: Map<string, SelectionEntry> | undefined;
}

/**
 * One client's subscription to a view: the position of the client, what it has that the position does not say, and what
 * must be sent in addition to the changes since then. A client at a position without anything else takes the response
 * that all others there take; else `#reconcile` makes one for it alone. SotW and delta differ in how a response is
 * written, and in what its absence says: a complete SotW state leaves the client nothing that a view does not say.
 */
export class Cursor implements Subscription, ViewSubscriber, SentItems {
  encoding: Encoding;
  readonly responses: SentResponses;
  readonly wake: () => void;
  payer: Payer | undefined;
  readonly polls: Subscriber['polls'];
  readonly #pool: ViewPool;
  readonly #isDelta: boolean;
  #view: View;
  /** What the client was last sent. Undefined: nothing was sent yet. */
  #position: Position | undefined;
  #claims: Claims | undefined;
  /** Delta: what the next responses must mention as soon as it is known. */
  #owed: Map<string, SelectionEntry> | undefined;
  /** The client still has these: their removals were deferred. */
  #deferred: ReadonlyMap<string, RetainedResource> | undefined;
  /** Sent next even if the client has it. Cursors with one object share the response. */
  #resend: ResendItems | undefined;
  /** No other cursor has that object, or gets the response. */
  #resendsAlone = false;
  /** Changes of rejected responses that are sent once more, each by itself: the next one is last. */
  #retries: RejectedChange[] | undefined;
  /** When the update arrived that it answered last. */
  #answeredAt: number | undefined;
  /** Wildcards and globs, by their ids, whose first response is due: it is sent even if it is empty. */
  #awaited: ReadonlySet<string>;
  #behind = false;
  /** It is behind, but has nothing to say until its view changes or its client asks for more, or only deferred removals. */
  #silent: 'altogether' | 'but for removals' | undefined;
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
    this.#view = pool.view(selection, access, polls === 'client' ? selection : undefined);
    this.#view.join(this);
    this.#markBehind(true);
    this.#oweGlobs(selection.collections);
  }

  get selection(): Selection {
    return this.#view.selection;
  }

  get size(): number {
    return this.#view.items.size;
  }

  get owed(): readonly SelectionEntry[] {
    return [...(this.#owed?.values() ?? none)].filter((one) => !this.selection.has(entryId(one)));
  }

  get allUnknown(): boolean {
    return this.#view.allUnknown;
  }

  get pending(): boolean {
    return this.#retries !== undefined || this.#claims !== undefined || this.#hasNews;
  }

  get due(): boolean {
    // A wildcard that is added later holds up nothing: what changes beside it is due.
    const awaits = this.#silent !== undefined || (this.#position === undefined && this.#awaitsFirstAnswer());
    return this.#retries !== undefined || (this.#hasNews && !this.#isHeldBack() && !awaits);
  }

  /** What a SotW client has from an earlier stream is as good as a response. */
  get responded(): boolean {
    return this.#hadEverything || this.responses.lastNonce !== undefined;
  }

  get hasState(): boolean {
    return this.resumed || this.responded;
  }

  get hasDeferredRemovals(): boolean {
    return this.#deferred !== undefined;
  }

  refersTo(reference: Reference): boolean {
    if (this.#view.referencesAt(this.#view.head).has(reference)) return true;
    // What the client has and the view does not show.
    const beside = [this.#position?.overlay, this.#deferred];
    return beside.some((all) => all && referencesOfAll(all).has(reference));
  }

  newReferences(): References {
    if (this.#position !== undefined) return this.#position.newReferencesIn(this.#view);
    // What it led to on an earlier stream is not known. In SotW it may be sent again although it has not changed.
    return this.resumed && (this.#isDelta || this.polls === 'client')
      ? this.#view.referencesAt(this.#view.head)
      : new Set();
  }

  has(name: ResourceName): boolean {
    const view = this.#view;
    return (
      view.forms.some(({ locator, parameters }) => this.#has(itemId(locator, parameters, name))) ||
      view.respelled(name).some(({ id }) => this.#has(id))
    );
  }

  positionIn(view: View): number | undefined {
    return this.#position?.view === view ? this.#position.revision : undefined;
  }

  holdings(): Iterable<Holding> {
    return holdings(this.#view.items.values(), this.responses.itemStates(), (id) => this.#lastSent(id));
  }

  holdingsOf(version: string, said: ItemState): Iterable<Holding> {
    const { items } = this.#view;
    const isCurrent = version === this.contentVersion;
    const lastSent = (id: string): Value | undefined => (isCurrent ? items.get(id)?.last.value : undefined);
    return holdings(items.values(), (_, sent) => (isCurrent && !isVariant(sent) ? notSent : said), lastSent);
  }

  get complete(): boolean {
    return this.#view.complete;
  }

  get collectionsResolved(): boolean {
    return this.#view.collectionsResolved;
  }

  get resolved(): boolean {
    return this.#view.unresolvedNames.size === 0 && this.#view.collectionsResolved;
  }

  get contentVersion(): string {
    return contentVersionOf(this.#view);
  }

  get kept(): EncodedResponse | undefined {
    return this.#view.shown.shared.find({ ...fromNothing, encoding: this.encoding }, beforeAll)?.response;
  }

  whole(isKept: boolean): EncodedResponse {
    const { kept } = this;
    if (kept !== undefined) return kept;
    // What differs by names that nobody has is one response.
    const view = this.#view.shown;
    const step = { ...fromNothing, encoding: this.encoding };
    const input = { ...this.#input(() => false), view, firstResponseDue: true, lastSerial: beforeAll };
    const composed = composeSotw(input, changesSince(view, -1, undefined));
    // A first response is composed even if it is empty.
    if (composed.response === undefined) throw new Error('a first response that is due was not composed');
    if (!composed.response.timeDependent && (isKept || view.isShared)) view.shared.add(step, composed);
    this.#view.dropHistory();
    return composed.response;
  }

  share(): void {
    this.payer = undefined;
    this.#view.join(this);
  }

  get missing(): readonly MissingEntry[] {
    return this.#view.missing;
  }

  isShared(response: Response): boolean {
    return this.#view.shared.holds(response);
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
    const { access: before, selection: old } = this.#view;
    if (before.key !== access.key || !old.equals(selection)) this.#move(selection, access);
    if (again.size > 0) {
      this.#selectAgain(again);
      // What it subscribes to again it may have dropped.
      if (this.#isDelta && this.responses.awaitsAnswer && this.#position?.view !== this.#view)
        this.#position?.addOutstanding(this.responses.outstandingAdditions(), this.#view);
    }
    this.#owe(mustAnswer);
    if (mustAnswer.length > 0) this.#markBehind(true);
  }

  resend(canonical: ResendItems): void {
    const added = shownOf(this.#view, canonical);
    this.#claims?.resend(this.#view, added);
    this.#oweUnknown(added);
    const empty = this.selection.collections.filter((one) => added.has(entryId(one)));
    this.#oweGlobs(empty);
    if (empty.length > 0) this.#markBehind(true);
    // What the client does not have is sent anyway.
    if (!added.values().some((id) => isVariant(this.#lastSent(id)))) return;
    if (this.#resend === undefined) this.#resend = added;
    else if (this.#resend !== added) this.#resendAlone(added);
    this.#markBehind(true);
  }

  take(defers: Defers, mostBytes = Number.POSITIVE_INFINITY): EncodedResponse | undefined {
    let response = this.#retries === undefined ? undefined : this.#takeRetry();
    if (response === undefined && this.#behind && !this.#isHeldBack())
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
      this.#deferred = withDoubts(this.#deferred, answered.additions);
    }
    return kind;
  }

  sentOf(id: string): Value | undefined {
    return this.#view.items.has(id) ? this.#lastSent(id) : undefined;
  }

  get hasSomething(): boolean {
    if (this.#position === undefined) return false;
    return this.#view.items.values().some(({ id }) => isVariant(this.#lastSent(id)));
  }

  close(): void {
    this.#deferred = undefined;
    this.#claims = undefined;
    this.#payForEarlier();
    this.#markBehind(false);
    const anchor = this.#position?.view;
    this.#position = undefined;
    anchor?.release(this);
    this.#view.quit(this);
    this.#pool.leave(this.#view);
    if (anchor !== undefined && anchor !== this.#view) this.#pool.leave(anchor);
  }

  /** The view changed. */
  invalidated(): void {
    this.#markBehind(true);
  }

  /** Whether a response may hold a part of what the client subscribes to. A complete one deletes what is missing. */
  get #takesParts(): boolean {
    return this.#isDelta || !this.#view.complete;
  }

  #move(selection: Selection, access: Access): void {
    const [old, base] = [this.#view, this.#position];
    // It leaves a view before any response was sent from it.
    if (this.#isDelta && base !== undefined && base.view !== old) {
      this.#position = base.movedTo(old);
      base.view.release(this);
      this.#pool.leave(base.view);
    }
    const added = selection.collections.filter((selected) => !old.selection.has(entryId(selected)));
    const left = selection.collections.filter((selected) => this.#awaited.has(entryId(selected)));
    this.#awaited = withIds(noIds, [...left, ...added]);
    this.#markBehind(false);
    this.#view = this.#pool.view(selection, access, old.selection);
    if (this.#deferred !== undefined) this.#deferred = deferredIn(this.#view, old.selection, this.#deferred);
    this.#view.join(this, old);
    this.#view.release(this);
    this.#markBehind(true);
    if (this.#position?.view === old) old.anchor(this);
    old.quit(this);
    this.#pool.leave(old);
    // Of a glob that is unsubscribed nothing needs to be said.
    for (const one of this.owed) if (isGlob(one.selector)) this.#owed?.delete(entryId(one));
    this.#oweGlobs(added);
  }

  /** The selected items with these ids, and what the wildcards and globs among them show, are sent again. */
  #selectAgain(ids: ReadonlySet<string>): void {
    const collections = this.selection.collections.filter((selected) => ids.has(entryId(selected)));
    this.#claims?.resend(this.#view, ids);
    this.#awaited = withIds(
      this.#awaited,
      collections.filter(({ selector }) => selector === WILDCARD),
    );
    this.#resendAlone(new Set([...ids, ...itemsOf(this.#view, new Set(collections))]));
    this.#markBehind(true);
    this.#oweGlobs(collections);
    this.#oweUnknown(ids);
  }

  /** It has them, so nothing else would be sent once they are known again (protocol §4.2, §10.1). */
  #oweUnknown(ids: ReadonlySet<string>): void {
    if (this.#isDelta) this.#owe(unknownIn(this.#view, ids).filter((one) => this.#has(entryId(one))));
  }

  /** What one client alone asked for again, and what is left of what it asked for before. */
  #resendAlone(ids: ReadonlySet<string>): void {
    const { items } = this.#view;
    const left = this.#resend?.values().filter((id) => items.has(id));
    this.#resend = new Set([...ids, ...(left ?? none)]);
    this.#resendsAlone = true;
  }

  /** The answer to an empty glob is its URL as removed (protocol §6). */
  #oweGlobs(collections: readonly SelectionEntry[]): void {
    if (this.#isDelta) this.#owe(collections.filter(({ selector }) => isGlob(selector)));
  }

  #owe(selected: readonly SelectionEntry[]): void {
    if (selected.length === 0) return;
    this.#owed ??= new Map();
    for (const one of selected) this.#owed.set(entryId(one), one);
  }

  #markBehind(behind: boolean): void {
    this.#silent = undefined;
    if (this.#behind === behind || this.polls === 'class') return;
    this.#behind = behind;
    this.#view.behind += behind ? 1 : -1;
  }

  /** Nothing is deleted at the client while its state is unknown (protocol §3.9). */
  #isHeldBack(): boolean {
    if (this.#silent === 'altogether') return true;
    if (!this.#isDelta) return this.#waitsForState();
    const view = this.#view;
    if (this.#waitForAll && !this.responded && !view.collectionsResolved) return true;
    return this.#position?.waitsForCollectionsOf(view) === true;
  }

  /** Absence from a complete state deletes. */
  #waitsForState(): boolean {
    const { complete, collectionsResolved, unresolvedNames } = this.#view;
    if (!complete) return false;
    if (!collectionsResolved) return true;
    if (this.encoding.unknownNames) return false;
    const moved = unresolvedNames.size > 0 ? this.#position?.movedInto(this.#view) : undefined;
    const isHeld = ({ id, spelling }: Item): boolean =>
      this.#earlier?.possiblyHeld?.has(spelling) === true || this.#has(id) || moved?.has(id) === true;
    return unresolvedNames.values().some(isHeld);
  }

  /** More than that deferred removals may be sent now. */
  get #hasNews(): boolean {
    const hasMore = this.#deferred === undefined || this.#owed !== undefined || this.#resend !== undefined;
    return this.#behind && (hasMore || this.positionIn(this.#view) !== this.#view.head);
  }

  /** A wildcard's first response is due, whatever is in it, but the wildcard is not resolved yet. */
  #awaitsFirstAnswer(): boolean {
    return this.#awaited.size > 0 && !this.#view.collectionsResolved;
  }

  #mustSendEmpty(): boolean {
    return this.#awaited.size > 0 && this.#claims?.skipsSome !== true && this.#view.collectionsResolved;
  }

  #takeRetry(): EncodedResponse | undefined {
    if (!this.#takesParts) this.#retries = undefined; // the complete state has it
    while (this.#retries !== undefined) {
      const rejected = this.#retries.pop();
      if (this.#retries.length === 0) this.#retries = undefined;
      const change = rejected && changeToResend(rejected, this.#view, this.#lastSent(rejected.item.id));
      const response = change && this.#compose(retryInput(this.#input(() => false)), [change]).response;
      if (response !== undefined) return response;
    }
    return undefined;
  }

  /** The response that moves the cursor to the head; undefined if there is nothing to say. */
  #takeChanges(defers: Defers, mostBytes: number): EncodedResponse | undefined {
    if (this.#hasEverything()) {
      this.#hadEverything = true;
      this.#advance(undefined, undefined);
      return undefined;
    }
    const move = this.#needsOwnResponse() ? this.#reconcile(defers) : undefined;
    const { response, deferredRemovals, untold } = move ?? this.#shared(defers);
    if (deferredRemovals !== undefined && response !== undefined && response.bytes.length > mostBytes)
      return this.#takeChanges(defersNothing, Number.POSITIVE_INFINITY);
    // What stays although nobody defers it waits for what is unknown.
    const isLast = deferredRemovals === undefined || defers === defersNothing;
    if (response === undefined && this.#awaitsFirstAnswer()) {
      this.#silent = isLast ? 'altogether' : 'but for removals';
      const deferred = deferredMeanwhile(this.#position, this.#deferred, deferredRemovals);
      if (deferred === this.#deferred) return undefined;
      this.#deferred = deferred;
      this.#payForEarlier();
      return undefined;
    }
    this.#deferred = deferredRemovals;
    const news = response && this.responses.asNews(response);
    this.#advance(move, untold);
    if (isLast && untold === undefined) this.#silent = 'altogether';
    return news;
  }

  /** Whether the version in a SotW client's first request (CONTENT) shows that it has everything visible (§3.10). */
  #hasEverything(): boolean {
    const version = this.#earlier?.contentVersion;
    if (version === undefined) return false;
    this.#earlier = { ...this.#earlier, contentVersion: undefined };
    return showsAll(this.#view, version);
  }

  #advance(move: Move | undefined, untold: ResendItems | undefined): void {
    const [view, old] = [this.#view, this.#position?.view];
    const overlay = move === undefined ? this.#overlay() : move.overlay;
    this.#claims = move?.claims;
    this.#owed = move?.owed;
    this.#earlier = undefined;
    if (this.#position?.view === view) this.#coalesced += this.#position.advance(overlay, untold);
    else this.#position = new Position(view, view.head, overlay, untold);
    this.#resend = untold;
    this.#resendsAlone = false;
    if (this.#awaited.size > 0) this.#awaited = awaitedAtHead(view, this.#awaited);
    this.#markBehind(this.#deferred !== undefined || untold !== undefined);
    view.dropHistory();
    if (old !== undefined && old !== view) {
      old.release(this);
      this.#pool.leave(old);
      this.responses.moved((id) => this.#lastSent(id));
    }
    this.#payForEarlier();
  }

  #payForEarlier(): void {
    const bytes = this.#isDelta ? bytesOfEarlier(this.#claims, this.#deferred) : 0;
    if (bytes !== this.#earlierBytes) this.payer?.keeps(bytes - this.#earlierBytes);
    this.#earlierBytes = bytes;
  }

  /** Only this client has to be sent this: other cursors at its position get another response. */
  #needsOwnResponse(): boolean {
    const { view, overlay } = this.#position ?? { view: this.#view, overlay: undefined };
    return (
      view !== this.#view ||
      this.#claims !== undefined ||
      this.#owed !== undefined ||
      (overlay !== undefined && (this.#isDelta || view.forms.some(({ locator }) => locator)))
    );
  }

  /** The response for all cursors at this position. */
  #shared(defers: Defers): Composed {
    const [view, encoding, from] = [this.#view, this.encoding, this.#position?.revision ?? -1];
    const deferred = this.#deferredIds(from, defers);
    const step = {
      from,
      resend: this.#resend,
      deferred: deferred === noIds ? '' : JSON.stringify([...deferred]),
      deferredBefore: this.#deferred,
      firstResponseDue: this.#mustSendEmpty(),
      encoding,
    };
    const known = this.#resendsAlone ? undefined : view.shared.find(step, this.responses.lastSerial);
    // Others are told the new TTL of what this client has rejected.
    if (known !== undefined && !this.responses.rejects(known)) return known;
    const changes = comingBack(changesSince(view, step.from, step.resend), this.#deferred, this.#timersAt);
    const input = this.#input(({ item }) => deferred.has(item.id));
    const composed = this.#pool.timed(() => this.#compose(input, changes));
    if (!this.#resendsAlone && composed.response?.timeDependent !== true && view.isShared)
      view.shared.add(step, composed);
    return composed;
  }

  /** The response for this client alone: all that the view shows, compared with all that the client has. */
  #reconcile(defers: Defers): Move {
    const [view, base] = [this.#view, this.#position];
    const resources = base?.resourcesIn(view) ?? new Map<string, RetainedResource>();
    const isWithheld = base?.withheld();
    const all = view.items.values().map((item) => this.#changeOf(item, resources, isWithheld));
    const changes = comingBack(all, this.#deferred, this.#timersAt);
    const covered = this.#claims?.coveredIn(view, (id) => this.#lastSent(id)) ?? nothingCovered;
    const { absent, left: owed } = answersIn(this.#owed, view);
    // What a wildcard or glob of the view no longer shows, and what was deferred.
    const removals = new Map<string, RetainedResource>([
      ...covered.kept.map((one) => [one.item.id, one] as const),
      ...removalsIn(resources, view),
      ...(this.#deferred ?? none),
    ]);
    const isHiding = this.#isDelta ? leavesDoubtful(resources, view.items) : () => false;
    const composed = this.#compose(
      {
        ...this.#input((one) => this.#defers(one, defers) || (this.#mayStay(one) && isHiding(one))),
        allItems: true,
        deferredRemovals: removals.size > 0 ? removals : undefined,
        mustRemove: [...covered.named, ...absent],
      },
      changes,
    );
    return { ...composed, overlay: this.#overlay(resources), claims: covered.left, owed };
  }

  /** What the client has at the head and the view does not say. `moved`: what it has from another view. */
  #overlay(moved?: ReadonlyMap<string, RetainedResource>): Position['overlay'] {
    return this.#takesParts ? this.#position?.overlayIn(this.#view, this.#isDelta, moved) : undefined;
  }

  /** Ids of the removals that are deferred, of those since a revision and of what earlier responses deferred. */
  #deferredIds(from: number, defers: Defers): ReadonlySet<string> {
    if (defers === defersNothing || from < 0) return noIds;
    const since = this.#view.removedSince(from);
    // Nearly always: this is on the way of each update to each client.
    if (since.length === 0 && this.#deferred === undefined) return noIds;
    const all = new Map([...since.map((one) => [one.item.id, one] as const), ...(this.#deferred ?? none)]);
    return new Set([...all].filter(([, removed]) => this.#defers(removed, defers)).map(([id]) => id));
  }

  #defers(one: RetainedResource, defers: Defers): boolean {
    if (defers === defersNothing || !this.#mayStay(one)) return false;
    return defers({ spelling: one.item.spelling, variant: one.variant, since: one.deferredAt });
  }

  /** What the client may not see any more goes at once, and what its own timer has ended is not sent again (§8.1). */
  #mayStay({ item, variant }: RetainedResource): boolean {
    return !hasExpired(variant, this.#timersAt) && this.#view.admits(variant, item.parameters);
  }

  /** What was to live until then the client's own timers have ended. */
  get #timersAt(): number {
    return this.encoding.ttl ? this.#pool.options.clock.monotonic() : Number.NEGATIVE_INFINITY;
  }

  #changeOf(
    item: Item,
    resources: ReadonlyMap<string, RetainedResource>,
    isWithheld: ((id: string) => boolean) | undefined,
  ): Change {
    const { id, spelling } = item;
    const has = resources.get(id);
    const lastSent = has?.variant ?? this.#lastSent(id);
    return {
      item,
      now: item.last.value,
      lastSent: lastSent === 'absent' && isWithheld?.(id) === true ? 'unknown' : lastSent,
      clientVersion: this.#claims?.versionOf(spelling),
      resend: this.#resend?.has(id) === true || has?.mayBeDropped === true || this.#owed?.has(id) === true,
    };
  }

  #input(defers: (removed: RetainedResource) => boolean): CompositionInput {
    const [view, position] = [this.#view, this.#position];
    return {
      view,
      encoding: this.encoding,
      lastSerial: this.responses.lastSerial,
      now: this.#pool.options.clock.monotonic(),
      controlPlane: this.#pool.options.controlPlane,
      allItems: false,
      headAt: position?.view === view && position.revision < view.head ? view.headAt : undefined,
      errorsSentUpTo: (item) => (position === undefined ? -1 : position.errorsSentUpTo(view, item)),
      isRejected: (id, variant) => {
        const isRejected = this.responses.isRejected(id, variant);
        this.#resendsAlone ||= isRejected;
        return isRejected;
      },
      outstanding: () => this.responses.outstandingAdditions(),
      defers,
      deferredRemovals: this.#deferred,
      firstResponseDue: this.#mustSendEmpty(),
      mustRemove: none,
    };
  }

  #compose(input: CompositionInput, changes: Iterable<Change>): Composed {
    return this.#isDelta ? composeDelta(input, changes) : composeSotw(input, changes);
  }

  #has(id: string): boolean {
    return isVariant(this.#lastSent(id)) || this.#deferred?.has(id) === true;
  }

  #lastSent(id: string): Value | undefined {
    return this.#position?.lastSent(id);
  }
}
