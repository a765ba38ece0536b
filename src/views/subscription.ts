import type { Access } from '../model/access.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { itemId, type Selected, type Selection, selectedId } from '../model/selection.ts';
import { type Batch, batch, type Encoding, type Holding, type Subscription } from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import { Answers } from './answers.ts';
import { changesSince } from './changes-since.ts';
import { goneIn, showsAll } from './claims.ts';
import { type Change, type Composition, composeDelta, composeSotw } from './compose.ts';
import { itemsOf } from './coverage.ts';
import type { Composed, Frame, Kept, Step } from './frame.ts';
import {
  type Absences,
  absentIn,
  faultsTold,
  type Holdings,
  heldIn,
  holdingsOf,
  lapsedIn,
  lostIn,
  openIn,
  selectedIn,
} from './holdings.ts';
import { holding } from './item.ts';
import { Outstanding } from './outstanding.ts';
import { again, type Part, partsOf } from './rejected.ts';
import type { Standing, View } from './view.ts';
import type { ViewPool } from './view-pool.ts';

const none: readonly never[] = [];

/** One client's share of a view: a cursor, and what it is owed beyond what the cursor says. */
export class ViewSubscription implements Subscription, Standing {
  encoding: Encoding;
  /** Told when there may be something to take. */
  readonly wake: () => void;
  readonly #pool: ViewPool;
  #view: View;
  /** Where the client stands; undefined: it holds nothing. */
  #base: { view: View; revision: number; generation: number; absent?: Absences } | undefined;
  #overtaken = 0;
  /** Delta only. */
  readonly #answers = new Answers();
  /** What it has from earlier views, of which its view cannot say yet whether it is still there. Delta only. */
  #carried: Holdings | undefined;
  #behind = false;
  #owed: Batch | undefined;
  #claims: Map<string, string> | undefined;
  #content: string | undefined;
  #kept: ReadonlyMap<string, Kept> | undefined;
  #alone: Part[] | undefined;
  /** Names that it held before this stream: their absence deletes (protocol §3.9). */
  #mayHold: ReadonlySet<string> | undefined;
  readonly #outstanding = new Outstanding();
  #lastSerial = 0;
  #responded = false;
  #patient = false;
  /** A wildcard or glob came with the selection: its first response is due, whatever is in it. */
  #fresh: boolean;

  constructor(pool: ViewPool, encoding: Encoding, selection: Selection, access: Access, wake: () => void) {
    this.#pool = pool;
    this.encoding = encoding;
    this.wake = wake;
    this.#fresh = selection.hasCollection;
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
    return this.#alone !== undefined || (this.#behind && !this.#onlyKept());
  }

  get due(): boolean {
    return this.#alone !== undefined || (this.pending && !this.#withheld() && !this.#firstPending());
  }

  get responded(): boolean {
    return this.#responded;
  }

  /** The revision that the client stands on in a view; undefined if it stands elsewhere, or nowhere yet. */
  standingIn(view: View): number | undefined {
    return this.#base?.view === view ? this.#base.revision : undefined;
  }

  waitForAll(): void {
    this.#patient = true;
  }

  claimNames(names: ReadonlySet<string>): void {
    this.#mayHold = names;
  }

  claimVersions(versions: ReadonlyMap<string, string>): void {
    this.#claims = new Map(versions);
  }

  claimContent(version: string): void {
    this.#content = version;
  }

  *held(): Iterable<Holding> {
    for (const [id, item] of this.#view.items) yield holding(item, this.#heldAt(id));
  }

  overtaken(): number {
    const count = this.#overtaken;
    this.#overtaken = 0;
    return count;
  }

  select(
    selection: Selection,
    access: Access,
    again: ReadonlySet<string>,
    answer: readonly Selected[],
  ): void {
    if (this.#view.access.key !== access.key || !this.#view.selection.equals(selection))
      this.#move(selection, access);
    if (again.size > 0) this.#force(again);
    if (answer.length === 0) return;
    for (const selected of answer) this.#answers.add(selected);
    this.#markBehind(true);
  }

  #move(selection: Selection, access: Access): void {
    const old = this.#view;
    if (this.encoding.protocol === 'delta') this.#settleIn(old);
    this.#fresh = selection.collections.some(
      (selected) => this.#fresh || !old.selection.has(selectedId(selected)),
    );
    this.#expectGlobs(selection.collections.filter((selected) => !old.selection.has(selectedId(selected))));
    this.#markBehind(false);
    this.#view = this.#pool.view(selection, access, old.selection);
    this.#view.subscribers.add(this);
    this.#view.anchored.delete(this);
    this.#markBehind(true);
    if (this.#base?.view === old) old.anchored.add(this);
    old.subscribers.delete(this);
    this.#leave(old);
  }

  /**
   * Leaves a view from which it has not taken anything: what the client unsubscribed by moving there it has dropped,
   * though it may come back to it (protocol §4.5).
   */
  #settleIn(view: View): void {
    const base = this.#base;
    if (base === undefined || base.view === view) return;
    this.#carried = selectedIn(holdingsOf(base, view, this.#carried), view);
    this.#base = { view, revision: -1, generation: view.generation, absent: absentIn(base, view) };
    base.view.anchored.delete(this);
    this.#leave(base.view);
  }

  owe(owed: Batch): void {
    if (this.#owed === owed) return;
    for (const id of owed.items) {
      if (!isVariant(this.#heldAt(id))) continue; // what it does not hold is sent anyway
      this.#owed = this.#owed === undefined ? owed : batch(owed.items.union(this.#owed.items));
      this.#markBehind(true);
      return;
    }
  }

  #force(ids: ReadonlySet<string>): void {
    const { selection } = this.#view;
    const collections = selection.collections.filter((selected) => ids.has(selectedId(selected)));
    this.#expectGlobs(collections);
    // An answer is due, though it be empty.
    if (collections.some(({ selector }) => selector === WILDCARD)) this.#fresh = true;
    const items = new Set([...ids, ...itemsOf(this.#view, new Set(collections))]);
    this.#owed = batch(this.#owed === undefined ? items : items.union(this.#owed.items));
    this.#markBehind(true);
  }

  /** Whether the client has all that is visible, by the version that it came with (CONTENT). */
  #hasAll(): boolean {
    const has = this.#content !== undefined && showsAll(this.#view, this.#content);
    this.#content = undefined;
    if (has) this.#responded = true;
    return has;
  }

  get hasKept(): boolean {
    return this.#kept !== undefined;
  }

  take(keepRemoved: boolean): Frame | undefined {
    if (!this.#behind && this.#alone === undefined) return undefined;
    if (this.#alone !== undefined) {
      const alone = this.#takeAlone();
      if (alone !== undefined) return this.#taken(alone);
    }
    if (!this.#behind || this.#withheld()) return undefined;
    if (this.#hasAll()) {
      this.#advance();
      return undefined;
    }
    const pending = this.#firstPending();
    const claims = pending && this.#claims !== undefined ? new Map(this.#claims) : undefined;
    const { frame, kept } = this.#compose(keepRemoved);
    if (frame === undefined && pending) {
      if (claims !== undefined) this.#claims = claims; // nothing was said: they are as open as before
      return undefined;
    }
    this.#kept = kept;
    this.#advance();
    return frame === undefined ? undefined : this.#taken(frame);
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
    const parts = whole ? [] : partsOf(rejected);
    if (parts.length > 0) this.#alone = [...(this.#alone ?? []), ...parts];
    return true;
  }

  close(): void {
    this.#markBehind(false);
    const anchor = this.#base?.view;
    this.#base = undefined;
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

  #taken(frame: Frame): Frame {
    this.#responded = true;
    this.#lastSerial = frame.serial;
    this.#outstanding.sent(frame.serial, frame.told, this.encoding.protocol === 'sotw');
    return frame;
  }

  #advance(): void {
    const view = this.#view;
    const old = this.#base?.view;
    this.#carried = this.#stillOpen();
    this.#answers.toldBy(view);
    if (this.#base === undefined || old !== view) {
      this.#base = { view, revision: view.head, generation: view.generation };
    } else {
      this.#overtaken += Math.max(0, view.generation - this.#base.generation - 1);
      this.#base.revision = view.head;
      this.#base.generation = view.generation;
    }
    this.#owed = undefined;
    this.#mayHold = undefined;
    if (this.#fresh && view.settled) this.#fresh = false;
    this.#markBehind(this.#kept !== undefined || this.#claims !== undefined);
    view.relax();
    if (old === undefined || old === view) return;
    old.anchored.delete(this);
    this.#leave(old);
  }

  #leave(view: View): void {
    if (view.subscribers.size === 0 && view.anchored.size === 0) this.#pool.retire(view);
    else view.relax();
  }

  /** Nothing is new but that what was kept back may go now. */
  #onlyKept(): boolean {
    return (
      this.#kept !== undefined &&
      this.standingIn(this.#view) === this.#view.head &&
      this.#owed === undefined &&
      this.#claims === undefined &&
      this.#answers.empty
    );
  }

  /**
   * Nothing that deletes is sent from the unknown (§3.9). In delta that is what a client has by a wildcard or glob and,
   * its parameters being others now, might lose: it keeps all of it until that is known, and is told in one response.
   */
  #withheld(): boolean {
    const view = this.#view;
    if (this.encoding.protocol === 'delta') {
      if (this.#patient && !this.#responded && !view.settled) return true;
      const from = this.#base?.view;
      if (from === undefined || from === view || view.settled) return false;
      return view.selection.collections.some((selected) => from.selection.has(selectedId(selected)));
    }
    if (!view.complete) return false;
    if (!view.settled) return true;
    for (const item of view.unknown) {
      if (this.#mayHold?.has(item.spelling) === true || isVariant(this.#heldAt(item.id))) return true;
    }
    return false;
  }

  /** A wildcard's first response is due, whatever is in it, but the wildcard is not answered yet. */
  #firstPending(): boolean {
    return this.#fresh && !this.#view.settled;
  }

  #firstDue(): boolean {
    return this.#fresh && this.#claims === undefined && this.#view.settled;
  }

  #compose(keepRemoved: boolean): Composed {
    const base = this.#base;
    const view = this.#view;
    const simple =
      (base === undefined || base.view === view) &&
      this.#claims === undefined &&
      this.#kept === undefined &&
      this.#carried === undefined &&
      this.#answers.empty;
    if (!simple) return this.#composeOwn(this.#composition(keepRemoved));
    const step: Step = {
      from: base === undefined ? -1 : base.revision,
      owed: this.#owed,
      keepRemoved,
      first: this.#firstDue(),
      encoding: this.encoding,
    };
    const known = view.frames.find(step, this.#lastSerial);
    if (known !== undefined) return known;
    const composed = this.#composeWith(
      this.#composition(keepRemoved),
      changesSince(view, step.from, this.#owed?.items),
    );
    if (composed.frame?.fleeting !== true) view.frames.add(step, composed);
    return composed;
  }

  #composition(keepRemoved: boolean): Composition {
    const base = this.#base;
    return {
      view: this.#view,
      encoding: this.encoding,
      now: this.#pool.now(),
      controlPlane: this.#pool.controlPlane,
      newcomer: base?.view !== this.#view,
      told: (item) => (base === undefined ? -1 : faultsTold(base, this.#view, item)),
      keepRemoved,
      kept: this.#kept,
      gone: none,
      first: this.#firstDue(),
      lastSerial: this.#lastSerial,
    };
  }

  #composeWith(parts: Composition, changes: Iterable<Change>): Composed {
    return this.encoding.protocol === 'sotw' ? composeSotw(parts, changes) : composeDelta(parts, changes);
  }

  /** From another view, or with claims: nothing to share. */
  #composeOwn(parts: Composition): Composed {
    const changes: Change[] = [];
    const answered = new Set<string>();
    const holdings = this.#holdings();
    for (const item of this.#view.items.values()) {
      const claimed = this.#claims?.get(item.spelling);
      const forced = this.#owed?.items.has(item.id) === true || this.#answers.has(item.id);
      const held = holdings?.get(item.id)?.variant ?? this.#heldAt(item.id);
      changes.push({ item, now: item.last.value, held, claimed, forced });
      if (claimed !== undefined && item.last.value !== 'unknown') answered.add(item.spelling);
    }
    for (const name of answered) this.#claims?.delete(name);
    return this.#composeWith({ ...parts, kept: this.#keptAndLost(holdings), gone: this.#gone() }, changes);
  }

  /** What it holds that its cursor in the view does not tell. */
  #holdings(): Holdings | undefined {
    if (this.#base === undefined || this.#base.view === this.#view) return this.#carried;
    return holdingsOf(this.#base, this.#view, this.#carried);
  }

  #stillOpen(): Holdings | undefined {
    if (this.encoding.protocol === 'sotw') return undefined;
    const view = this.#view;
    const stays = this.#base?.view === view && view.lapsed.size > 0 ? this.#base : undefined;
    const holdings = stays === undefined ? this.#holdings() : lapsedIn(stays, this.#carried);
    return holdings === undefined ? undefined : openIn(holdings, view);
  }

  /** What was kept back, and what a wildcard or glob of the view no longer shows. */
  #keptAndLost(holdings: Holdings | undefined): ReadonlyMap<string, Kept> | undefined {
    if (holdings === undefined) return this.#kept;
    const kept = lostIn(holdings, this.#view);
    for (const [id, entry] of this.#kept ?? none) kept.set(id, entry);
    return kept.size > 0 ? kept : undefined;
  }

  #expectGlobs(collections: readonly Selected[]): void {
    if (this.encoding.protocol === 'delta') this.#answers.addGlobs(collections);
  }

  #gone(): Composition['gone'] {
    const gone = this.#goneClaims().map((name) => ({
      id: itemId(false, NO_PARAMETERS, name),
      name,
      locator: false,
    }));
    for (const [id, selected] of this.#answers.absentIn(this.#view)) {
      gone.push({ id, name: selected.spelling, locator: selected.locator });
    }
    return gone;
  }

  /** Claimed, covered by an answered wildcard, and not there: gone while the client was away (protocol §4.1). */
  #goneClaims(): readonly string[] {
    const view = this.#view;
    if (this.#claims === undefined || !view.settled) return none;
    const gone = goneIn(view, this.#claims.keys());
    if (view.unknown.size === 0) this.#claims = undefined;
    for (const name of gone) this.#claims?.delete(name);
    return gone;
  }

  #takeAlone(): Frame | undefined {
    if (this.encoding.protocol === 'sotw' && this.#view.complete) this.#alone = undefined; // it goes with the whole
    while (this.#alone !== undefined) {
      const part = this.#alone.shift();
      if (this.#alone.length === 0) this.#alone = undefined;
      const change = part === undefined ? undefined : again(part, this.#view, this.#heldAt(part.item.id));
      if (change === undefined) continue;
      const parts: Composition = {
        ...this.#composition(false),
        newcomer: true,
        told: () => this.#view.head,
        kept: undefined,
        first: false,
      };
      const { frame } = this.#composeWith(parts, [change]);
      if (frame !== undefined) return frame;
    }
    return undefined;
  }

  /** What the client was last sent of an item, by the cursor. */
  #heldAt(id: string): Value | undefined {
    return this.#base === undefined ? undefined : heldIn(this.#base, this.#carried, id);
  }
}
