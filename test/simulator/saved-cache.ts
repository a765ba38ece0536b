import { Dirty } from '../../src/cache/persistence/dirty.ts';
import type { Row, RowBatch } from '../../src/cache/persistence/records.ts';
import { Decoder, encode, rowsOf } from '../../src/cache/persistence/rows.ts';
import type { Restored, Store } from '../../src/cache/store.ts';
import { type TypeUrl, typeUrl } from '../../src/model/brand.ts';
import { type Clock, WallTime } from '../../src/model/clock.ts';
import { catalog } from './world.ts';

/** How long changes gather before they are written, as in the relay, and how long a write takes, in milliseconds. */
const gatherMs = 100;
const writeMs = 20;

/** What a relay's persistence has written, in all its incarnations: the rows, without the disk that they would be on. */
export class SavedCache {
  readonly #rows = new Map<string, Row>();
  readonly #payloads = new Map<string, RowBatch['payloads'][number]>();
  readonly #excluded: ReadonlySet<TypeUrl>;

  constructor(secrets: boolean) {
    this.#excluded = new Set(secrets ? [] : [typeUrl(catalog.sds.url)]);
  }

  get empty(): boolean {
    return this.#rows.size === 0;
  }

  /** For an incarnation of the relay, whose clock stops when it dies. */
  open(clock: Clock): Saving {
    return new Saving(this, this.#excluded, clock);
  }

  put({ rows, payloads }: RowBatch): void {
    for (const payload of payloads) {
      this.#payloads.set(payload.digest, { ...payload, bytes: Uint8Array.from(payload.bytes) });
    }
    for (const row of rows) {
      const key = JSON.stringify([row.kind, row.type, row.key]);
      if (row.body === undefined) this.#rows.delete(key);
      else this.#rows.set(key, row);
    }
  }

  read(): RowBatch {
    const rows = [...this.#rows.values()];
    const payloads = Array.from(new Set(rows.flatMap((row) => row.payloads)), (digest) => {
      const payload = this.#payloads.get(digest);
      if (payload === undefined) throw new Error(`payload ${digest} was not written`);
      return { digest, bytes: Uint8Array.from(payload.bytes) };
    });
    return { rows, payloads };
  }
}

/** One incarnation's way there: what `Persistence` does, without waiting for a disk. */
export class Saving {
  readonly journal: Dirty;
  readonly #saved: SavedCache;
  readonly #excluded: ReadonlySet<TypeUrl>;
  readonly #clock: Clock;
  readonly #stored = new Set<string>();
  #store: Store | undefined;
  /** Written together, and lost together if the relay dies meanwhile. */
  #writing: readonly RowBatch[] | undefined;
  #due = false;

  constructor(saved: SavedCache, excluded: ReadonlySet<TypeUrl>, clock: Clock) {
    this.#saved = saved;
    this.#excluded = excluded;
    this.#clock = clock;
    this.journal = new Dirty(
      () => clock.monotonic(),
      excluded,
      () => this.#schedule(),
    );
  }

  /** Nothing would be lost now. */
  get clean(): boolean {
    return this.journal.since === undefined && this.#writing === undefined;
  }

  /** What the incarnation before has left. */
  load(serves: string): Restored | undefined {
    if (this.#saved.empty) return undefined;
    const terms = { keeps: () => true, serves: () => serves, clock: this.#clock, differs: this.journal };
    const decoder = new Decoder(terms);
    decoder.take(this.#saved.read());
    const restored = decoder.finish();
    if (!restored.ok) throw new Error(restored.error);
    for (const digest of decoder.payloads) this.#stored.add(digest);
    return restored.value;
  }

  attach(store: Store): void {
    this.#store = store;
    if (this.journal.since !== undefined) this.#schedule();
  }

  /** All of it, at once: the relay ends as it should. */
  finish(): void {
    this.#commit();
    this.#take();
    this.#commit();
  }

  #schedule(): void {
    if (this.#due || this.#store === undefined) return;
    this.#due = true;
    this.#clock.after(gatherMs, () => {
      this.#take();
      this.#clock.after(writeMs, () => {
        this.#commit();
        this.#due = false;
        if (this.journal.since !== undefined) this.#schedule();
      });
    });
  }

  #take(): void {
    if (this.#store === undefined || this.journal.since === undefined) return;
    const snapshot = rowsOf(this.#store.tables, this.journal.take(), this.#excluded);
    this.#writing = [...encode(snapshot, this.#stored, this.#stored, new WallTime(this.#clock))];
  }

  #commit(): void {
    for (const part of this.#writing ?? []) this.#saved.put(part);
    this.#writing = undefined;
  }
}
