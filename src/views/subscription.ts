import type { Access } from '../model/access.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { itemId, type Selection } from '../model/selection.ts';
import { type Batch, batch, type Encoding, type Subscription } from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import { globMatches } from '../model/xdstp.ts';
import { type Change, type Composition, composeDelta, composeSotw, viewDigest } from './compose.ts';
import type { Composed, Frame, Kept } from './frame.ts';
import { type Item, valueAt } from './item.ts';
import { Outstanding } from './outstanding.ts';
import type { Standing, View } from './view.ts';

/** What a subscription needs of the views that it moves between. */
export interface ViewPool {
  readonly controlPlane: string;
  now(): number;
  /** The view of this class; the caller joins its `subscribers`. */
  view(selection: Selection, access: Access): View;
  /** Nobody stands on the view any more. */
  retire(view: View): void;
}

const none: readonly never[] = [];
/** One client's share of a view: a cursor, and what it is owed beyond what the cursor says. */
export class ViewSubscription implements Subscription, Standing {
  readonly encoding: Encoding;
  /** Told when there may be something to take. */
  readonly wake: () => void;
  readonly #pool: ViewPool;
  #view: View;
  /** Where the client stands; undefined: it holds nothing. */
  #base: { view: View; revision: number; generation: number } | undefined;
  #overtaken = 0;
  /** Plain names whose absence must be told though it may have been (protocol §4.5). */
  #answer: readonly string[] = none;
  #behind = false;
  #owed: Batch | undefined;
  #claims: Map<string, string> | undefined;
  #kept: ReadonlyMap<string, Kept> | undefined;
  #alone: Item[] | undefined;
  /** Names that it held before this stream: their absence deletes (protocol §3.9). */
  #mayHold: ReadonlySet<string> | undefined;
  readonly #outstanding = new Outstanding();
  #lastSerial = 0;
  #responded = false;

  constructor(pool: ViewPool, encoding: Encoding, selection: Selection, access: Access, wake: () => void) {
    this.#pool = pool;
    this.encoding = encoding;
    this.wake = wake;
    this.#view = pool.view(selection, access);
    this.#view.subscribers.add(this);
    this.#markBehind(true);
  }

  get selection(): Selection {
    return this.#view.selection;
  }

  get view(): View {
    return this.#view;
  }

  get cold(): boolean {
    return this.#view.cold;
  }

  get pending(): boolean {
    return this.#behind || this.#alone !== undefined;
  }

  get due(): boolean {
    return this.#alone !== undefined || (this.#behind && !this.#withheld() && !this.#firstPending());
  }

  get responded(): boolean {
    return this.#responded;
  }

  /** The revision that the client stands on in a view; undefined if it stands elsewhere, or nowhere yet. */
  standingIn(view: View): number | undefined {
    return this.#base?.view === view ? this.#base.revision : undefined;
  }

  claimNames(names: ReadonlySet<string>): void {
    this.#mayHold = names;
  }

  claimVersions(versions: ReadonlyMap<string, string>): void {
    this.#claims = new Map(versions);
  }

  claimContent(version: string): boolean {
    if (!this.#view.settled || this.#view.unknown.size > 0) return false;
    for (const { last } of this.#view.items.values()) {
      if (isVariant(last.value) && last.value.ttl !== undefined) return false;
    }
    if (!version.endsWith(`@${viewDigest(this.#view)}`)) return false;
    this.#advance();
    this.#responded = true;
    return true;
  }

  *held(): Iterable<{ readonly name: string; readonly value: Value | undefined }> {
    for (const [id, item] of this.#view.items) yield { name: item.spelling, value: this.#heldAt(id) };
  }

  overtaken(): number {
    const count = this.#overtaken;
    this.#overtaken = 0;
    return count;
  }

  select(selection: Selection, access: Access, again: ReadonlySet<string>, answer: readonly string[]): void {
    if (again.size > 0) this.#force(again);
    if (answer.length > 0) {
      this.#answer = [...this.#answer, ...answer];
      this.#markBehind(true);
    }
    if (this.#view.access === access && this.#view.selection.equals(selection)) return;
    const old = this.#view;
    this.#markBehind(false);
    this.#view = this.#pool.view(selection, access);
    this.#view.subscribers.add(this);
    this.#view.anchored.delete(this);
    this.#markBehind(true);
    if (this.#base?.view === old) old.anchored.add(this);
    old.subscribers.delete(this);
    this.#leave(old);
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
    const items = new Set(ids);
    for (const { locator, parameters, selector, spelling } of this.#view.selection.collections) {
      if (!ids.has(itemId(locator, parameters, spelling))) continue;
      for (const item of this.#view.items.values()) {
        const covered = item.locator === locator && item.parameters === parameters;
        if (covered && (selector === WILDCARD || globMatches(selector, item.name))) items.add(item.id);
      }
    }
    this.#owed = batch(this.#owed === undefined ? items : items.union(this.#owed.items));
    this.#markBehind(true);
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
    const { frame, kept } = this.#compose(keepRemoved);
    if (frame === undefined && this.#firstPending()) return undefined;
    this.#kept = kept;
    this.#advance();
    return frame === undefined ? undefined : this.#taken(frame);
  }

  ack(serial: number): void {
    this.#outstanding.answered(serial);
  }

  /**
   * A rejected response is not sent again as it was. Envoy rejects {a invalid, b valid} whole: each resource goes out
   * once more, alone (protocol §3.12).
   */
  nack(serial: number): void {
    const rejected = this.#outstanding.answered(serial);
    const whole = this.encoding.protocol === 'sotw' && this.#view.complete;
    if (rejected === undefined || whole || rejected.length < 2) return;
    this.#alone = [...(this.#alone ?? []), ...rejected];
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
    this.#outstanding.sent(frame.serial, frame.items, this.encoding.protocol === 'sotw');
    return frame;
  }

  #advance(): void {
    const view = this.#view;
    const old = this.#base?.view;
    if (this.#base === undefined || old !== view) {
      this.#base = { view, revision: view.head, generation: view.generation };
    } else {
      this.#overtaken += Math.max(0, view.generation - this.#base.generation - 1);
      this.#base.revision = view.head;
      this.#base.generation = view.generation;
    }
    this.#owed = undefined;
    this.#answer = none;
    this.#mayHold = undefined;
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

  /** SotW: nothing that deletes is sent from the unknown; delta: a wildcard's first answer is not split (§3.9, §4.10). */
  #withheld(): boolean {
    const view = this.#view;
    if (this.encoding.protocol === 'delta' || !view.complete) return false;
    if (!view.settled) return true;
    for (const item of view.unknown) {
      if (this.#mayHold?.has(item.spelling) === true || isVariant(this.#heldAt(item.id))) return true;
    }
    return false;
  }

  /** A wildcard's first response is due, whatever is in it, but the wildcard is not answered yet. */
  #firstPending(): boolean {
    return !this.#responded && this.#view.selection.hasCollection && !this.#view.settled;
  }

  #firstDue(): boolean {
    return (
      !this.#responded &&
      this.#claims === undefined &&
      this.#view.selection.hasCollection &&
      this.#view.settled
    );
  }

  #compose(keepRemoved: boolean): Composed {
    const base = this.#base;
    const simple =
      (base === undefined || base.view === this.#view) &&
      this.#claims === undefined &&
      this.#kept === undefined;
    const parts: Composition = {
      view: this.#view,
      encoding: this.encoding,
      now: this.#pool.now(),
      controlPlane: this.#pool.controlPlane,
      faultsSince: base?.view === this.#view ? base.revision : -1,
      keepRemoved,
      kept: this.#kept,
      gone: none,
      first: this.#firstDue(),
      lastSerial: this.#lastSerial,
    };
    if (!simple) return this.#composeOwn(parts);
    const from = base === undefined ? -1 : base.revision;
    const key = `${from} ${this.#owed?.id ?? 0} ${keepRemoved} ${parts.first} ${this.encoding.key}`;
    const known = this.#view.frames.get(key);
    if (known !== undefined && (known.frame?.serial ?? Number.POSITIVE_INFINITY) > this.#lastSerial)
      return known;
    const composed = this.#composeWith(parts, this.#changes(from));
    if (composed.frame?.fleeting !== true) this.#view.frames.set(key, composed);
    return composed;
  }

  #composeWith(parts: Composition, changes: Iterable<Change>): Composed {
    return this.encoding.protocol === 'sotw' ? composeSotw(parts, changes) : composeDelta(parts, changes);
  }

  /** The view's changes since a revision, -1 for all, and what is owed besides. */
  *#changes(from: number): Iterable<Change> {
    const owed = this.#owed?.items;
    const items = from < 0 ? this.#view.items.values() : this.#view.changedSince(from);
    for (const item of items) {
      const held = from < 0 ? undefined : valueAt(item, from);
      yield { item, now: item.last.value, held, claimed: undefined, forced: owed?.has(item.id) === true };
    }
    if (owed === undefined || from < 0) return;
    for (const id of owed) {
      const item = this.#view.items.get(id);
      if (item === undefined || item.last.revision > from) continue;
      yield { item, now: item.last.value, held: valueAt(item, from), claimed: undefined, forced: true };
    }
  }

  /** From another view, or with claims: nothing to share. */
  #composeOwn(parts: Composition): Composed {
    const changes: Change[] = [];
    for (const item of this.#view.items.values()) {
      const claimed = item.locator ? undefined : this.#claims?.get(item.spelling);
      const forced = this.#owed?.items.has(item.id) === true;
      changes.push({ item, now: item.last.value, held: this.#heldAt(item.id), claimed, forced });
      if (claimed !== undefined && item.last.value !== 'unknown') this.#claims?.delete(item.spelling);
    }
    return this.#composeWith({ ...parts, kept: this.#keptAndLost(), gone: this.#gone() }, changes);
  }

  /** What the client holds of its old view and a wildcard or glob of the new one no longer shows. */
  #keptAndLost(): ReadonlyMap<string, Kept> | undefined {
    const base = this.#base;
    const kept = new Map<string, Kept>(this.#kept);
    if (base !== undefined && base.view !== this.#view && this.#view.selection.hasCollection) {
      for (const [id, item] of base.view.items) {
        const held = valueAt(item, base.revision);
        if (!isVariant(held) || this.#view.items.has(id)) continue;
        const covered = this.#view.selection.collections.some(
          ({ locator, parameters }) =>
            locator === item.locator && (!locator || parameters === item.parameters),
        );
        if (covered) kept.set(id, { item, variant: held });
      }
    }
    return kept.size > 0 ? kept : undefined;
  }

  #gone(): readonly string[] {
    const absent = this.#answer.filter((name) => {
      const item = this.#view.items.get(itemId(false, NO_PARAMETERS, name));
      return item === undefined || item.last.value === 'absent';
    });
    return [...absent, ...this.#goneClaims()];
  }

  /** Claimed, covered by an answered wildcard, and not there: gone while the client was away (protocol §4.1). */
  #goneClaims(): readonly string[] {
    const view = this.#view;
    if (this.#claims === undefined || !view.settled) return none;
    const gone: string[] = [];
    if (view.selection.hasCollection) {
      for (const name of this.#claims.keys()) {
        if (!view.items.has(itemId(false, NO_PARAMETERS, name))) gone.push(name);
      }
    }
    if (view.unknown.size === 0) this.#claims = undefined;
    for (const name of gone) this.#claims?.delete(name);
    return gone;
  }

  #takeAlone(): Frame | undefined {
    while (this.#alone !== undefined) {
      const item = this.#alone.shift();
      if (this.#alone.length === 0) this.#alone = undefined;
      if (item === undefined || this.#view.items.get(item.id) !== item || !isVariant(item.last.value))
        continue;
      if (item.last.revision > (this.standingIn(this.#view) ?? -1)) continue; // it goes out anyway
      const parts: Composition = {
        view: this.#view,
        encoding: this.encoding,
        now: this.#pool.now(),
        controlPlane: this.#pool.controlPlane,
        faultsSince: this.#view.head,
        keepRemoved: false,
        kept: undefined,
        gone: none,
        first: false,
        lastSerial: this.#lastSerial,
      };
      const held = this.#heldAt(item.id);
      const change: Change = { item, now: item.last.value, held, claimed: undefined, forced: true };
      return this.#composeWith(parts, [change]).frame;
    }
    return undefined;
  }

  /** What the client was last sent of an item, by the cursor. */
  #heldAt(id: string): Value | undefined {
    if (this.#base === undefined) return undefined;
    const item = this.#base.view.items.get(id);
    return item === undefined ? undefined : valueAt(item, this.#base.revision);
  }
}
