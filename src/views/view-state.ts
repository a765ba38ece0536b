import type { Access } from '../model/access.ts';
import type { Selection } from '../model/selection.ts';
import type {
  Encoding,
  Holding,
  ItemState,
  MissingEntry,
  StateReader,
  WholeState,
} from '../model/subscription.ts';
import type { Payer } from '../model/time-slices.ts';
import { holdings } from './item.ts';
import { changesSince } from './response-content.ts';
import type { CursorStep, EncodedResponse } from './shared-responses.ts';
import { composeSotw, viewDigest } from './sotw-response.ts';
import type { View, ViewSubscriber } from './view.ts';
import type { ViewPool } from './view-pool.ts';

/** A response over REST is kept with its JSON, which is three times as long. */
const bytesPerByte = 4;
/** No serial is lower. */
const beforeAll = 0;

/**
 * A view as polling clients read it: it has no position, and each answer is the way from nothing to the head. The
 * response is the view's own shared response, so a poll of an unchanged view composes nothing.
 */
export class ViewState implements WholeState, ViewSubscriber {
  readonly wake: () => void;
  payer: Payer | undefined;
  readonly #pool: ViewPool;
  readonly #encoding: Encoding;
  readonly #view: View;
  readonly #reader: StateReader;
  #isRepeated = false;
  #keptBytes = 0;

  constructor(pool: ViewPool, encoding: Encoding, selection: Selection, access: Access, reader: StateReader) {
    this.#reader = reader;
    this.#pool = pool;
    this.#encoding = encoding;
    this.wake = reader.wake;
    this.payer = reader.payer;
    this.#view = pool.view(selection, access);
    this.#view.join(this);
  }

  get selection(): Selection {
    return this.#view.selection;
  }

  get resolved(): boolean {
    return this.#view.unresolvedNames.size === 0 && this.#view.collectionsResolved;
  }

  get allUnknown(): boolean {
    return this.#view.allUnknown;
  }

  get complete(): boolean {
    return this.#view.complete;
  }

  get collectionsResolved(): boolean {
    return this.#view.collectionsResolved;
  }

  get version(): string {
    const { shown } = this.#view;
    return `${shown.version}@${viewDigest(shown)}`;
  }

  holdings(said: ItemState, version: string): Iterable<Holding> {
    const { items } = this.#view;
    const isCurrent = version === this.version;
    return holdings(
      items,
      () => said,
      (id) => (isCurrent ? items.get(id)?.last.value : undefined),
    );
  }

  get missing(): readonly MissingEntry[] {
    return this.#view.missing;
  }

  take(): EncodedResponse {
    const encoding = this.#encoding;
    // What differs by names that nobody has is one response.
    const view = this.#view.shown;
    const step: CursorStep = {
      from: -1,
      resend: undefined,
      deferred: '',
      deferredBefore: undefined,
      firstResponseDue: true,
      encoding,
    };
    const known = view.shared.find(step, beforeAll)?.response;
    if (known !== undefined) {
      if (view === this.#view) this.#keepBytes(known.bytes.length * bytesPerByte);
      return known;
    }
    const composed = composeSotw(
      {
        view,
        encoding,
        now: this.#pool.now(),
        controlPlane: this.#pool.controlPlane,
        headAt: undefined,
        errorsSentUpTo: () => -1,
        defers: () => false,
        deferredRemovals: undefined,
        firstResponseDue: true,
        allItems: true,
        mustRemove: [],
      },
      changesSince(view, -1, undefined),
      beforeAll,
    );
    // A first response is composed even if it is empty.
    if (composed.response === undefined) throw new Error('a first response that is due was not composed');
    if (!composed.response.timeDependent && (this.#isRepeated || view.isShared)) {
      view.shared.add(step, composed);
      if (view === this.#view) this.#keepBytes(composed.response.bytes.length * bytesPerByte);
    }
    this.#view.dropHistory();
    return composed.response;
  }

  keep(): void {
    this.#isRepeated = true;
  }

  #keepBytes(bytes: number): void {
    this.payer?.keeps(bytes - this.#keptBytes);
    this.#reader.kept(bytes - this.#keptBytes);
    this.#keptBytes = bytes;
  }

  share(): void {
    if (this.payer === undefined) return;
    this.payer.keeps(-this.#keptBytes);
    this.payer = undefined;
    this.#view.join(this);
  }

  close(): void {
    const view = this.#view;
    this.#keepBytes(0);
    view.quit(this);
    if (view.isUnused) this.#pool.retire(view);
  }

  /** For the view: a reader without a position keeps no history. */
  positionIn(): undefined {
    return undefined;
  }

  invalidated(): void {
    this.#keepBytes(0);
  }
}
