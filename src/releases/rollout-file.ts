import { createHmac, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { resourceName, typeUrl } from '../model/brand.ts';
import { Backoff, type Clock, lastMoment, type Timer } from '../model/clock.ts';
import type { Constraints } from '../model/constraints.ts';
import type { TypedName } from '../model/holds.ts';
import { getOrMake } from '../model/maps.ts';
import { contentHash } from '../model/payloads.ts';
import type { Payload, Variant } from '../model/resource.ts';
import type { Log } from '../observe/log.ts';
import { linkOrRename, setAside } from '../package/files.ts';
import { errorCode, explainError } from '../wire/node-error.ts';

const type = z.string().transform(typeUrl);
const name = z.string().transform(resourceName);
/** A newer version may know others: what was found bad stays so. */
const holdCause = z
  .enum(['rejected', 'disconnects', 'check', 'traffic', 'removals', 'content', 'timeout'])
  .catch('rejected');
/** What upstream said under a name. `hashes`: of each variant; of one that was removed without what it was. */
const savedContent = z.object({ type, name, hashes: z.array(z.string()).readonly() });

const typedName = z.tuple([type, name]).transform(([type, name]) => ({ type, name }));

type ListOf = <Element extends z.ZodType>(element: Element) => z.ZodType<readonly z.output<Element>[]>;

/** What a restart must not forget. */
const rolloutOf = (list: ListOf) =>
  z.object({
    freezes: list(
      z.object({
        type: type.optional(),
        upstream: z.string().optional(),
        operator: z.string(),
        reason: z.string(),
        since: z.number().min(0).max(lastMoment),
      }),
    ),
    /** The nodes (`nodeKeyOf`) that were canaries of what waited, each with its class. */
    canaries: list(z.tuple([z.string(), z.string()])).transform(
      (pairs): ReadonlyMap<string, string> => new Map(pairs),
    ),
    /** What was found bad, and the content that it is about. */
    verdicts: list(
      z.object({ cause: holdCause, reason: z.string(), contents: z.array(savedContent).readonly() }),
    ),
    /** What was discarded, and why. Without a cause: an operator has discarded it. */
    discards: list(savedContent.extend({ reason: z.string(), cause: holdCause.optional() })),
    /** Names of which a rollback has removed all or some variants, which stay away until they are released. */
    withheld: list(typedName),
    /** What canaries had while some of them were of a later wave. */
    shown: list(typedName),
  });

const whole: ListOf = (element) => z.array(element).readonly();
/** What can be read of a list: one freeze that is damaged, or of another version, must not open the others. */
const readableOf: ListOf = (element) =>
  z
    .array(element.optional().catch(undefined))
    .transform((all) => all.filter((one) => one !== undefined))
    .catch([]);

const savedRollout = rolloutOf(whole);
const readable = rolloutOf(readableOf);

export type SavedRollout = z.output<typeof savedRollout>;

/**
 * What of a variant is kept: a hash of whom it is for, and one of what it is; on the disk with a dot between them. The disk
 * shows it, so nobody may guess a secret by it.
 */
export type HashOf = (variant: Hashed) => readonly [where: string, what: string];
type Hashed = Pick<Variant, 'constraints' | 'payload' | 'aliases' | 'metadata'>;

/** Without a key. What a variant is does not say by which keys its clients are told apart: a reload may change these. */
export const plainHash: HashOf = hashesBy((hash) => hash);

/**
 * What was found bad is compared at every look. A change may have a name for each of many parameter sets, and all of it is
 * hashed at once: for whom it is is the same for all names of a session, and most content is the same for all sessions.
 */
function hashesBy(last: (hash: string) => string): HashOf {
  const known = new WeakMap<Hashed, ReturnType<HashOf>>();
  const wheres = new WeakMap<Constraints, string>();
  const whats = new WeakMap<Payload, string>();
  const whatOf = ({ payload, aliases, metadata }: Hashed): string => {
    const around = [payload?.hash ?? '', aliases, metadata === undefined ? '' : contentHash(metadata)];
    return last(contentHash(JSON.stringify(around)));
  };
  return (variant) =>
    getOrMake(known, variant, () => {
      const { constraints, payload, aliases, metadata } = variant;
      const isPayload = aliases.length === 0 && metadata === undefined && payload !== undefined;
      const what = isPayload ? getOrMake(whats, payload, () => whatOf(variant)) : whatOf(variant);
      return [getOrMake(wheres, constraints, () => last(contentHash(constraints.key))), what];
    });
}

/** Before the first change. */
export const nothingSaved: SavedRollout = {
  freezes: [],
  canaries: new Map(),
  verdicts: [],
  discards: [],
  withheld: [],
  shown: [],
};

/** Names of which a rollback has removed something, and those that canaries have. */
const most = { withheld: 10_000, shown: 10_000 };

const keyBytes = 32;
/** There is none, or no directory that it could be in: that is said where it is written. */
const noFile: ReadonlySet<string | undefined> = new Set(['ENOENT', 'ENOTDIR']);

/** How long the next attempt waits after a failed one, in milliseconds. */
const retryMs = { first: 5000, longest: 60_000 };

/** Another file takes its place: a crash, a power cut or a full disk leaves the one or the other, and never a part. */
async function replace(path: string, content: string | Buffer, before = () => {}): Promise<void> {
  const file = await open(`${path}.new`, 'w', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  before();
  await rename(`${path}.new`, path);
}

/** What is frozen, who is a canary, and what was found bad or discarded, beside the persisted cache: a restart must not open what an operator closed. */
export class RolloutFile {
  readonly #path: string;
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #log: Log;
  readonly #failed: (error: unknown) => void;
  readonly #obstacle: () => unknown;
  /**
   * Of the hashes, in a file of its own: who reads rollout.json, in a copy or a report, cannot try guesses of what was
   * discarded, as the body of a secret.
   */
  readonly #keyPath: string;
  #key: Buffer | undefined;
  /** Why the last state is not in the file, and since when, in milliseconds since the epoch. */
  failure: { readonly reason: string; readonly since: number } | undefined;
  /** Why what was in the file at the start is not known: until the next state is in it. */
  unread: RolloutFile['failure'];
  /** What is to be written, when what is on its way is. */
  #next: SavedRollout | undefined;
  #writing: Promise<void> | undefined;
  /** Of the next attempt. */
  #retry: Timer | undefined;
  readonly #pauses = new Backoff(retryMs.first, retryMs.longest, () => 1);

  /**
   * `failed`: called for each attempt to write that failed. `obstacle`: why nothing may be written, or a promise of it;
   * undefined: it may be.
   */
  constructor(
    directory: string,
    clock: Pick<Clock, 'now' | 'after'>,
    log: Log,
    failed: (error: unknown) => void,
    obstacle: () => unknown = () => undefined,
  ) {
    this.#path = join(directory, 'rollout.json');
    this.#keyPath = join(directory, 'rollout.key');
    this.#clock = clock;
    this.#log = log;
    this.#failed = failed;
    this.#obstacle = obstacle;
  }

  readonly hashOf: HashOf = hashesBy((hash) =>
    createHmac('sha256', this.#keyOf()).update(hash).digest('hex').slice(0, 32),
  );

  load(): SavedRollout {
    let read: unknown;
    try {
      read = JSON.parse(readFileSync(this.#path, 'utf8'));
      const saved = savedRollout.safeParse(read);
      if (saved.success) return saved.data;
      throw new SyntaxError(z.prettifyError(saved.error));
    } catch (error) {
      if (noFile.has(errorCode(error))) return nothingSaved;
      const reason = error instanceof SyntaxError ? error.message : explainError(error);
      const rest = readable.safeParse(read).data;
      const message =
        rest === undefined
          ? 'what was frozen or found bad is not known: the file cannot be read'
          : 'a part of what was frozen or found bad is not known: what can be read of the file is kept';
      this.#log.error(message, { file: this.#path, reason });
      this.unread = { reason, since: this.#clock.now() };
      // Who counts it is made after it was read.
      this.#clock.after(0, () => this.#failed(error));
      return rest ?? nothingSaved;
    }
  }

  /** An operator may look into what could not be read. Not before it is replaced: it may be another process's. */
  #setAside(): void {
    if (this.unread === undefined) return;
    try {
      const aside = setAside(this.#path, [], linkOrRename);
      this.#log.warn('the file that could not be read is set aside', { file: this.#path, set_aside: aside });
    } catch {
      // Then it is replaced.
    }
  }

  /**
   * Nothing that serves clients waits for the disk. A state that cannot be written is tried again until it is, or until
   * there is a newer one.
   */
  save(state: SavedRollout): void {
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#next = state;
    this.#writing ??= this.#writeNext();
  }

  /** What was saved until now is in the file, or `failure` says why not. */
  get settled(): Promise<void> {
    return this.#writing ?? Promise.resolve();
  }

  async #writeNext(): Promise<void> {
    for (let state = this.#next; state !== undefined; state = this.#next) {
      this.#next = undefined;
      const error = await this.#write(state);
      if (error === undefined) {
        this.failure = undefined;
        this.unread = undefined;
        this.#pauses.reset();
      } else this.#fail(error, state);
    }
    this.#writing = undefined;
  }

  #fail(error: unknown, state: SavedRollout): void {
    const reason = explainError(error);
    this.#failed(error);
    if (this.failure?.reason !== reason)
      this.#log.error(
        'what is frozen or found bad is not kept across a restart: the file cannot be written',
        { file: this.#path, reason },
      );
    this.failure = { reason, since: this.failure?.since ?? this.#clock.now() };
    if (this.#next === undefined)
      this.#retry = this.#clock.after(this.#pauses.next(), () => this.save(state));
  }

  /** The error: it could not. */
  async #write({ freezes, canaries, verdicts, discards, ...named }: SavedRollout): Promise<unknown> {
    const obstacle = await this.#obstacle();
    if (obstacle !== undefined) return obstacle;
    try {
      const pairs = (names: readonly TypedName[]) => names.map(({ type, name }) => [type, name]);
      const withheld = pairs(named.withheld.slice(0, most.withheld));
      // A part of it would be shown without the rest.
      const shown = named.shown.length > most.shown ? [] : pairs(named.shown);
      const saved = { freezes, canaries: [...canaries], verdicts, discards, withheld, shown };
      const text = JSON.stringify(saved);
      // A key first: without it the hashes say nothing. Another process may have left its own.
      const key = this.#key;
      const there = key && (await readFile(this.#keyPath).catch(() => undefined));
      if (key && there?.equals(key) !== true) await replace(this.#keyPath, key);
      await replace(this.#path, text, () => this.#setAside());
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Another one if there is none: what was saved by that is not known any more. */
  #keyOf(): Buffer {
    this.#key ??= this.#readKey() ?? randomBytes(keyBytes);
    return this.#key;
  }

  #readKey(): Buffer | undefined {
    try {
      const key = readFileSync(this.#keyPath);
      if (key.length === keyBytes) return key;
      throw new Error(`it has ${key.length} bytes, and not ${keyBytes}`);
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return undefined;
      this.#log.error('what was found bad or discarded is not known: its key cannot be read', {
        file: this.#keyPath,
        reason: explainError(error),
      });
    }
    return undefined;
  }
}
