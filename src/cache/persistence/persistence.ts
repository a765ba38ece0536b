import { crc32 } from 'node:zlib';
import * as z from 'zod';
import type { TypeUrl } from '../../model/brand.ts';
import type { RecordedChanges } from '../../model/change.ts';
import { type Clock, Sweep, type Timer, WallTime, within } from '../../model/clock.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { Selector } from '../../model/transaction.ts';
import { Conditions } from '../../observe/conditions.ts';
import type { Log } from '../../observe/log.ts';
import type { Restored, Store } from '../store.ts';
import { type Dirt, Dirty } from './dirty.ts';
import type { Disk } from './disk.ts';
import type { Reply } from './disk-server.ts';
import type { DiskError } from './records.ts';
import { type ChangeSource, count, Decoder, encode, moment, rowsOf, type SnapshotRow } from './rows.ts';

/** Changes gather for so long before they are written together. */
const gatherMs = 100;
/** Even if nothing changes, the time is written until which the relay was alive. */
const aliveMs = 60_000;
/** A write that takes longer is worth a line. */
const slowMs = 30_000;
const retryMs = { first: 1000, longest: 60_000 };

export interface PersistenceOptions {
  readonly disk: Disk;
  /** For messages. */
  readonly path: string;
  /** Types that are not kept on disk. */
  readonly leaveOut: readonly TypeUrl[];
  /** As they are now. */
  readonly upstreams: () => readonly UpstreamIdentity[];
  /** The name of the upstream that a selector is asked of. */
  readonly serves: (type: TypeUrl, selector: Selector) => string | undefined;
  /** Since when what came from an upstream may be out of date; undefined while it is current. */
  readonly staleSince: (upstream: string) => number | undefined;
  /** Of the TLS sessions of each listener, sealed: nobody can read it here. */
  readonly sessions: () => Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly log: Log;
  /** Each time something could not be done. */
  readonly failed: (kind: DiskError['kind'] | 'slow') => void;
}

export interface Loaded {
  readonly restored: Restored;
  /** Since when what came from each upstream may be out of date, in milliseconds since the epoch. */
  readonly staleSince: ReadonlyMap<string, number>;
}

/**
 * The last known good state on disk. Changes are only marked. When the disk is ready, what is marked is read from the
 * store at one moment between two transactions and written in one transaction: whole revisions, the latest of each row.
 * So a slow disk costs no memory, and nothing that serves clients waits for it. Where all is written anew it is read in
 * parts, and what has changed meanwhile at one moment then. An error of the disk is logged and counted, and the write is
 * tried again.
 */
export class Persistence {
  readonly #options: PersistenceOptions;
  readonly #conditions: Conditions;
  readonly #excluded: ReadonlySet<TypeUrl>;
  /** The store reports its changes here. */
  readonly journal: Dirty;
  /** Digests of the payloads that are on disk. */
  #payloads = new Set<string>();
  /** The disk must be opened before use. `discard`: why its file is to be set aside then. */
  #closed: { readonly discard: string | undefined } | undefined = { discard: undefined };
  /** How often in a row something failed. */
  #failures = 0;
  #restored: RecordedChanges & Pick<DiskState, 'sessions'> = { changes: [], lastRevision: 0, sessions: {} };
  #history: ChangeSource | undefined;
  /** Undefined: nothing is written, before a store is attached and after the end. */
  #store: Store | undefined;
  /** Of the next write. */
  #timer: Timer | undefined;
  /** The write under way, and since when what it writes has waited. */
  #writing: { readonly since: number | undefined; readonly done: Promise<void> } | undefined;
  /** A change that another process has recorded may have this revision. */
  #floor = 0;
  readonly #alive: Sweep;
  readonly #times: WallTime;
  #lastWrite: number | undefined;
  /** The last one since the last write. */
  #failure: { readonly reason: DiskError['kind']; readonly at: number } | undefined;

  constructor(options: PersistenceOptions) {
    this.#options = options;
    const { leaveOut, clock, log } = options;
    this.#conditions = new Conditions(log);
    this.#times = new WallTime(clock);
    this.#excluded = new Set(leaveOut);
    this.#alive = new Sweep(clock, aliveMs, () => {
      this.#schedule(0);
      return true;
    });
    this.journal = new Dirty(
      () => clock.monotonic(),
      this.#excluded,
      () => this.#schedule(gatherMs),
    );
  }

  /** Whether a restart keeps what there is of this type. */
  keeps(type: TypeUrl): boolean {
    return !this.#excluded.has(type);
  }

  /** For how long something has been waiting to be written, in seconds. */
  get lagSeconds(): number {
    const since = this.#writing?.since ?? this.journal.since;
    return since === undefined ? 0 : (this.#options.clock.monotonic() - since) / 1000;
  }

  /** Milliseconds since the epoch; undefined: nothing was written yet. */
  get lastWrite(): number | undefined {
    return this.#lastWrite;
  }

  /** Why the disk does not have what the cache has, and since when, in milliseconds since the epoch. */
  get failure(): { readonly reason: DiskError['kind']; readonly since: number } | undefined {
    if (this.#failure === undefined) return undefined;
    const { reason, at } = this.#failure;
    return { reason, since: Math.min(at, this.#options.clock.now() - this.lagSeconds * 1000) };
  }

  /** What is on disk and still belongs to its upstreams; undefined: nothing. Errors are logged. */
  async load(): Promise<Loaded | undefined> {
    const loaded = await this.#open();
    if (loaded.ok && loaded.value !== undefined) {
      const { resources, interests } = loaded.value.restored;
      return resources.length + interests.length === 0 ? undefined : loaded.value;
    }
    if (!loaded.ok) this.#reportFailure(loaded.error);
    this.#startOver();
    return undefined;
  }

  /** After `load`: what was recorded, and what `sessions` gave at the last write. */
  get restored(): RecordedChanges & Pick<DiskState, 'sessions'> {
    return this.#restored;
  }

  /** From now on what changes in the store, and what is recorded of it, is written. */
  attach(store: Store, history?: ChangeSource): void {
    this.#history = history;
    this.#store = store;
    if (this.journal.since !== undefined) this.#schedule(0);
    this.#alive.start();
  }

  /** What is marked now is on disk, or `failure` says why not. It does not wait for more to gather. */
  async settled(): Promise<void> {
    const isMarked = this.journal.since !== undefined;
    if (this.#failure !== undefined) return;
    // What is being written was taken before.
    await this.#writing?.done;
    if (!isMarked || this.#failure !== undefined) return;
    // Unless somebody else who asked has begun it.
    if (this.#timer !== undefined) this.#begin();
    await this.#writing?.done;
  }

  /** Writes what waits to be written, within this time, and ends. */
  async close(milliseconds: number): Promise<void> {
    const { clock, log, path, disk } = this.#options;
    const finished = this.#finish().then(() => disk.close());
    if (await within(clock, milliseconds, finished)) return;
    log.warn('the last changes could not be persisted in time', { path, milliseconds });
    disk.abandon();
  }

  /** Writes what waits, and that the relay was alive until now. */
  async #finish(): Promise<void> {
    this.#alive.stop();
    const store = this.#store;
    this.#store = undefined;
    this.#timer?.cancel();
    await this.#writing?.done;
    if (store !== undefined) await this.#write(store);
  }

  /** The disk is empty or its content is not known: everything is written anew. */
  #startOver(): void {
    this.#payloads.clear();
    this.journal.all();
  }

  #schedule(milliseconds: number): void {
    if (this.#store === undefined || this.#writing !== undefined) return;
    this.#timer ??= this.#options.clock.after(milliseconds, () => this.#begin());
  }

  #begin(): void {
    const store = this.#store;
    this.#timer?.cancel();
    this.#timer = undefined;
    if (store === undefined) return;
    const { since } = this.journal;
    this.#writing = { since, done: this.#writeAndGoOn(store) };
  }

  async #writeAndGoOn(store: Store): Promise<void> {
    await this.#write(store);
    this.#writing = undefined;
    if (this.journal.since !== undefined) this.#schedule(this.#pause());
  }

  #pause(): number {
    if (this.#failures === 0) return gatherMs;
    return Math.min(retryMs.first * 2 ** (this.#failures - 1), retryMs.longest);
  }

  async #write(store: Store): Promise<void> {
    const { clock } = this.#options;
    const started = clock.monotonic();
    const slow = clock.after(slowMs, () => {
      this.#options.failed('slow');
      this.#say('speed', 'slow', 'warn', 'the disk of the persisted cache is slow; serving goes on');
    });
    const failure = await this.#attempt(store);
    slow.cancel();
    if (failure !== undefined) {
      this.#reportFailure(failure);
      this.journal.waits(started);
      return;
    }
    if (clock.monotonic() - started < slowMs) this.#conditions.forget('speed');
    this.#failure = undefined;
    if (this.#failures > 0) this.#say('disk', 'well', 'info', 'the cache is persisted again');
    this.#failures = 0;
    this.#lastWrite = clock.now();
  }

  async #attempt(store: Store): Promise<DiskError | undefined> {
    const opened = await this.#openDisk();
    if (opened?.ok === false) return opened.error;
    if (opened !== undefined) {
      this.#startOver();
      // Another process may have written meanwhile.
      const { revision = 0 } = readState(opened.value.state ?? '') ?? {};
      this.#floor = Math.max(revision, this.#floor);
    }
    const taken = this.journal.take();
    const written = await this.#transact(store, taken);
    if (written.ok) return undefined;
    // What was taken behind everything is part of it.
    this.journal.putBack(taken);
    return written.error;
  }

  async #transact(store: Store, first: Dirt): Promise<Result<unknown, DiskError>> {
    const { disk } = this.#options;
    const added = new Set<string>();
    const rowsIn = (dirt: Dirt) => rowsOf(store.tables, dirt, this.#excluded, this.#history);
    const put = async ({ everything }: Dirt, rows: Iterable<SnapshotRow>, isBegun = false) => {
      if (everything) for (const digests of [this.#payloads, added]) digests.clear();
      const begun = isBegun && !everything ? ok(undefined) : await disk.begin(everything);
      if (!begun.ok) return begun;
      for (const part of encode(rows, this.#payloads, added, this.#times)) {
        const done = await disk.put(part);
        if (!done.ok) return done;
      }
      return begun;
    };
    let last = first;
    if (first.everything) {
      const read = await put(first, rowsIn(first));
      if (!read.ok) return read;
      last = this.journal.take();
    }
    // What is committed is of this moment. More may have changed meanwhile than is listed.
    const [rows, now] = [[...rowsIn(last)], stateText(this.#state())];
    const written = await put(last, rows, last !== first);
    if (!written.ok) return written;
    const dropped = await disk.commit(now);
    if (!dropped.ok) return dropped;
    for (const digest of added) this.#payloads.add(digest);
    for (const digest of dropped.value) this.#payloads.delete(digest);
    return dropped;
  }

  async #open(): Promise<Result<Loaded | undefined, DiskError>> {
    const opened = await this.#openDisk(true);
    if (opened?.ok === false) return opened;
    const { state, unwritable } = opened?.value ?? {};
    const loaded = state === undefined ? ok(undefined) : await this.#read(state);
    if (unwritable !== undefined) {
      // Whoever has the file may read it: another version may have written it.
      if (!loaded.ok) {
        const message = `${unwritable.message}; what it has cannot be read: ${loaded.error.message}`;
        return fail({ ...unwritable, message });
      }
      this.#reportFailure(unwritable);
    }
    if (loaded.ok || loaded.error.kind !== 'corrupt') return loaded;
    // What was read is not what was written.
    this.#closed = { discard: loaded.error.message };
    const again = await this.#openDisk();
    return again?.ok === false ? again : ok(undefined);
  }

  /** Undefined: it was open. */
  async #openDisk(mayCopy = false): Promise<Reply<'open'> | undefined> {
    if (this.#closed === undefined) return undefined;
    const { disk, leaveOut, path, log } = this.#options;
    const opened = await disk.open(leaveOut, this.#closed.discard, mayCopy);
    if (!opened.ok) return opened;
    this.#closed = undefined;
    const { setAside } = opened.value;
    if (setAside !== undefined) {
      const { file, reason } = setAside;
      const message = 'the persisted cache is unusable and set aside; a new one is begun';
      log.error(message, { path, file, reason });
      this.#failed('corrupt');
    }
    return opened;
  }

  #reportFailure(error: DiskError): void {
    this.#failures++;
    this.#failed(error.kind);
    // A full disk may get room again; after any other error the file is opened anew.
    if (error.kind !== 'full')
      this.#closed = { discard: error.kind === 'corrupt' ? error.message : undefined };
    const message = 'the cache cannot be persisted; serving goes on';
    this.#say('disk', error.kind, 'error', message, { kind: error.kind, reason: error.message });
  }

  #failed(reason: DiskError['kind']): void {
    this.#failure = { reason, at: this.#options.clock.now() };
    this.#options.failed(reason);
  }

  #say(topic: string, state: string, level: 'info' | 'warn' | 'error', message: string, fields = {}): void {
    this.#conditions.set(topic, state, level, message, { path: this.#options.path, ...fields });
  }

  async #read(text: string): Promise<Result<Loaded, DiskError>> {
    const { disk, clock, serves, log } = this.#options;
    const state = readState(text);
    if (state === undefined) return fail({ kind: 'corrupt', message: 'its state cannot be read' });
    const staleSince = this.#restorable(state);
    const keeps = (upstream: string): boolean => staleSince.has(upstream);
    const decoder = new Decoder({ keeps, serves, clock, differs: this.journal });
    for (;;) {
      const part = await disk.read();
      if (!part.ok) return part;
      if (part.value === undefined) break;
      decoder.take(part.value);
    }
    const decoded = decoder.finish();
    if (!decoded.ok) return fail({ kind: 'corrupt', message: decoded.error });
    const restored = decoded.value;
    const { sessions, revision } = state;
    this.#restored = { changes: restored.changes, lastRevision: revision, sessions };
    this.#payloads = new Set(decoder.payloads);
    log.info('the persisted cache is loaded', {
      resources: restored.resources.length,
      subscriptions: restored.interests.length,
      written: new Date(state.at).toISOString(),
    });
    return ok({ restored, staleSince });
  }

  /** The upstreams whose content is still theirs, and since when it may be out of date. */
  #restorable(state: DiskState): ReadonlyMap<string, number> {
    const before = new Map(state.upstreams.map((upstream) => [upstream.name, upstream]));
    const restorable = new Map<string, number>();
    for (const upstream of this.#options.upstreams()) {
      const known = before.get(upstream.name);
      const why = whyNotRestored(known, upstream);
      const fields = { upstream: upstream.name, reason: why };
      if (why === undefined) restorable.set(upstream.name, known?.staleSince ?? state.at);
      else this.#options.log.warn('nothing was restored for an upstream', fields);
    }
    return restorable;
  }

  /** Somebody may have been told of the next ones before they are on disk: who is killed leaves them out. */
  #lastRevision(): number {
    const own = this.#history?.lastRevision ?? this.#restored.lastRevision;
    const last = Math.max(own, this.#floor);
    return this.#store === undefined ? last : last + reserved;
  }

  #state(): DiskState {
    const { clock, upstreams, staleSince, sessions } = this.#options;
    return {
      at: clock.now(),
      sessions: sessions(),
      revision: this.#lastRevision(),
      upstreams: upstreams().map(({ name, text, places }) => ({
        name,
        text,
        places,
        staleSince: staleSince(name),
      })),
    };
  }
}

/** So many revisions may be given before the next write. */
const reserved = 1000;

/** What makes an upstream the one that something came from. */
export type UpstreamIdentity = Readonly<Omit<z.output<typeof upstreamState>, 'staleSince'>>;

/** An upstream at the time of a write. */
const upstreamState = z.object({
  name: z.string(),
  /** Everything that decides what it delivers and what it is asked for, in any form: another text, another upstream. */
  text: z.string(),
  /** Where it is. Upstreams with one of these in common are the same, because all endpoints serve the same. */
  places: z.array(z.string()).readonly(),
  /** Milliseconds since the epoch; undefined: it was current. */
  staleSince: moment.optional(),
});

/** What is written beside the rows, in the same transaction. */
const diskState = z.object({
  /** When it was written, in milliseconds since the epoch: then the relay was alive. */
  at: moment,
  upstreams: z.array(upstreamState),
  sessions: z.record(z.string(), z.string()).default({}),
  /** No change that was recorded has a higher one. */
  revision: count.default(0),
});

type DiskState = z.output<typeof diskState>;

/** What earlier versions have written has no checksum. */
const withChecksum = z.looseObject({ checksum: z.number().optional() });

const stateText = (state: DiskState): string =>
  JSON.stringify({ ...state, checksum: crc32(JSON.stringify(state)) });

/** Undefined: not what was written. */
function readState(text: string): DiskState | undefined {
  try {
    const { checksum, ...state } = withChecksum.parse(JSON.parse(text));
    if (checksum !== undefined && checksum !== crc32(JSON.stringify(state))) return undefined;
    return diskState.safeParse(state).data;
  } catch {
    return undefined;
  }
}

/** Why persisted resources of an upstream are not restored; undefined: they are. */
export function whyNotRestored(
  before: UpstreamIdentity | undefined,
  now: UpstreamIdentity,
): string | undefined {
  if (before === undefined) return 'it is a new upstream';
  if (before.text !== now.text) return 'what decides its content has changed';
  if (!before.places.some((place) => now.places.includes(place)))
    return 'it has none of its earlier endpoints or paths';
  return undefined;
}
