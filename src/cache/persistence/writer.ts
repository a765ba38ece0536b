import type { TypeUrl } from '../../model/brand.ts';
import type { Clock, Timer } from '../../model/clock.ts';
import type { Result } from '../../model/result.ts';
import type { Store } from '../store.ts';
import { Dirty, type TakenChanges } from './dirty.ts';
import type { DiskAccess } from './disk-access.ts';
import { encode, StoredPayloads } from './encode.ts';
import type { DiskError } from './records.ts';
import { type ChangeSource, type Snapshot, takeSnapshot } from './snapshot.ts';

/** Changes gather for so long before they are written together. */
const gatherMs = 100;
/** Even if nothing changes, the time is written until which the relay was alive. */
const aliveMs = 60_000;
/** A write that takes longer is worth a line. */
const slowMs = 30_000;
const retryMs = { first: 1000, longest: 60_000 };

type Phase =
  /** Nothing is written before a store is attached, nor after the end. */
  | { readonly kind: 'detached' }
  | { readonly kind: 'idle'; readonly store: Store }
  | { readonly kind: 'waiting'; readonly store: Store; readonly timer: Timer }
  | {
      readonly kind: 'writing';
      readonly store: Store;
      readonly since: number | undefined;
      readonly done: Promise<void>;
    };

/**
 * Changes are only marked. When the disk is ready, what is marked is read from the store at one moment between two
 * transactions and written in one transaction: whole revisions, the latest of each row. So a slow disk costs no memory.
 */
export class Writer {
  readonly dirty: Dirty;
  payloads = new StoredPayloads();
  readonly #access: DiskAccess;
  readonly #clock: Clock;
  readonly #excluded: ReadonlySet<TypeUrl>;
  readonly #state: () => string;
  #history: ChangeSource | undefined;
  #phase: Phase = { kind: 'detached' };
  #alive: Timer | undefined;
  #lastWrite: number | undefined;

  /** `excluded`: types that are not written. `state`: what is written beside the rows. */
  constructor(access: DiskAccess, clock: Clock, excluded: ReadonlySet<TypeUrl>, state: () => string) {
    this.#access = access;
    this.#clock = clock;
    this.#excluded = excluded;
    this.#state = state;
    this.dirty = new Dirty(
      () => clock.now(),
      excluded,
      () => this.#schedule(gatherMs),
    );
  }

  /** Milliseconds since the epoch; undefined: nothing was written yet. */
  get lastWrite(): number | undefined {
    return this.#lastWrite;
  }

  /** Since when something waits to be written, or is being written; undefined: nothing. */
  get behindSince(): number | undefined {
    return (this.#phase.kind === 'writing' ? this.#phase.since : undefined) ?? this.dirty.since;
  }

  attach(store: Store, history: ChangeSource | undefined): void {
    this.#history = history;
    this.#phase = { kind: 'idle', store };
    if (this.dirty.since !== undefined) this.#schedule(0);
    this.#stayAlive();
  }

  /** Writes what waits, and that the relay was alive until now. */
  async finish(): Promise<void> {
    this.#alive?.cancel();
    const phase = this.#phase;
    this.#phase = { kind: 'detached' };
    if (phase.kind === 'detached') return;
    if (phase.kind === 'waiting') phase.timer.cancel();
    if (phase.kind === 'writing') await phase.done;
    await this.#write(phase.store);
  }

  /** The disk is empty or its content is not known: everything is written anew. */
  startOver(): void {
    this.payloads = new StoredPayloads();
    this.dirty.all();
  }

  #schedule(milliseconds: number): void {
    if (this.#phase.kind !== 'idle') return;
    const { store } = this.#phase;
    const timer = this.#clock.after(milliseconds, () => this.#run(store));
    this.#phase = { kind: 'waiting', store, timer };
  }

  #run(store: Store): void {
    const { since } = this.dirty;
    this.#phase = { kind: 'writing', store, since, done: this.#writeAndGoOn(store) };
  }

  async #writeAndGoOn(store: Store): Promise<void> {
    await this.#write(store);
    if (this.#phase.kind !== 'writing') return;
    this.#phase = { kind: 'idle', store };
    if (this.dirty.since !== undefined) this.#schedule(this.#pause());
  }

  #pause(): number {
    const { failures } = this.#access;
    return failures === 0 ? gatherMs : Math.min(retryMs.first * 2 ** (failures - 1), retryMs.longest);
  }

  async #write(store: Store): Promise<void> {
    const access = this.#access;
    const started = this.#clock.now();
    const slow = this.#clock.after(slowMs, () => access.reportSlow());
    const failure = await this.#attempt(store);
    slow.cancel();
    if (failure !== undefined) {
      access.reportFailure(failure);
      this.dirty.since ??= started;
      return;
    }
    if (this.#clock.now() - started < slowMs) access.reportInTime();
    access.reportSuccess();
    this.#lastWrite = this.#clock.now();
  }

  async #attempt(store: Store): Promise<DiskError | undefined> {
    const opened = await this.#access.open();
    if (!opened.ok) return opened.error;
    if (opened.value !== undefined) this.startOver();
    // From here to the snapshot nothing waits: it is of one moment.
    const dirt = this.dirty.take();
    const snapshot = takeSnapshot(store.released(), dirt, this.#excluded, this.#history);
    const written = await this.#transact(snapshot, dirt);
    if (written.ok) {
      this.payloads.committed(written.value);
      return undefined;
    }
    this.payloads.rolledBack();
    this.dirty.putBack(dirt);
    return written.error;
  }

  async #transact(
    snapshot: Snapshot,
    { everything }: TakenChanges,
  ): Promise<Result<readonly string[], DiskError>> {
    const { disk } = this.#access;
    const now = this.#state();
    const begun = await disk.begin(everything);
    if (!begun.ok) return begun;
    if (everything) this.payloads = new StoredPayloads();
    for (const part of encode(snapshot, this.payloads)) {
      const put = await disk.put(part);
      if (!put.ok) return put;
    }
    return disk.commit(now);
  }

  #stayAlive(): void {
    this.#alive = this.#clock.after(aliveMs, () => {
      this.#schedule(0);
      this.#stayAlive();
    });
  }
}
