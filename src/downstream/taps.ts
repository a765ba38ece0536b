import type { Message } from '@bufbuild/protobuf';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import { onceFor } from '../model/maps.ts';
import type { RequestKind, Response } from '../model/subscription.ts';
import { keptError } from '../model/text.ts';
import {
  type Request,
  readSelectors,
  type SelectorFields,
  sotwSelectors,
  subscribed,
  unsubscribed,
} from '../wire/requests.ts';
import type { LoggedStream } from './stream-metrics.ts';

/** What waits for a reader, in messages: the largest takes about 30 KB. */
const maxWaiting = 2000;
/** The names of a message that are kept. */
const maxNames = 100;

/** Undefined: any. */
export interface TapFilter {
  /** A stream's id. */
  readonly client: string | undefined;
  readonly type: TypeUrl | undefined;
}

/** Whose message it is. */
type TappedStream = Pick<LoggedStream, 'id' | 'client'>;

/** A message as it passed, without bodies. Left out: what it does not have. */
export interface Tapped
  extends Partial<Omit<TapMessage, keyof Message | 'at' | 'event' | 'type' | 'names' | 'removed'>> {
  readonly event: 'SENT' | 'HEARD' | 'ENDED' | 'LOST';
  /** Milliseconds since the epoch. */
  readonly at?: number;
  readonly type?: TypeUrl;
  readonly names?: readonly string[];
  readonly removed?: readonly string[];
}

/**
 * Readers of the messages that pass. While there is none, a message costs one comparison. A reader that is too slow loses
 * messages: nothing waits for it.
 */
export class Taps {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #taps = new Set<Tap>();
  #isOver = false;

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#taps.size;
  }

  open(filter: TapFilter): Tap {
    const tap = new Tap(filter, () => this.#taps.delete(tap));
    this.#taps.add(tap);
    if (this.#isOver) tap.close();
    return tap;
  }

  sent(stream: TappedStream, type: TypeUrl, response: Response): void {
    if (this.#taps.size === 0) return;
    for (const tap of this.#taps) {
      if (!tap.wants(stream.id, type)) continue;
      tap.add({ event: 'SENT', ...this.#passed(stream), type, ...contentOf(response) });
    }
  }

  /** `request` is only valid during the call. */
  heard(stream: TappedStream, type: TypeUrl, kind: RequestKind, request: Request, bytes: number): void {
    if (this.#taps.size === 0) return;
    const taps = [...this.#taps].filter((tap) => tap.wants(stream.id, type));
    if (taps.length === 0) return;
    const { nonce, error, version } = request;
    const names = namesIn(request, kind);
    const content = {
      type,
      kind,
      version,
      nonce,
      resources: names.length,
      names: names.slice(0, maxNames),
      bytes,
    };
    const rejection = error && { error: keptError(error.message), errorCode: error.code };
    const message: Tapped = { event: 'HEARD', ...this.#passed(stream), ...content, ...rejection };
    for (const tap of taps) tap.add(message);
  }

  ended(stream: TappedStream): void {
    for (const tap of this.#taps) {
      if (tap.wants(stream.id, undefined)) tap.end({ event: 'ENDED', ...this.#passed(stream) });
    }
  }

  /** No more messages pass: readers are given what waits for them, and that was all. */
  end(): void {
    this.#isOver = true;
    for (const tap of this.#taps) tap.close();
  }

  #passed({ id, client }: TappedStream): Pick<Tapped, 'at' | 'client' | 'node'> {
    return { at: this.#clock.now(), client: id, node: client?.nodeId ?? '' };
  }
}

/** What one reader has not read yet: bounded. */
class Tap {
  readonly #filter: TapFilter;
  readonly #closed: () => void;
  #waiting: Tapped[] = [];
  #lost = 0;
  #over = false;
  #wake: (() => void) | undefined;

  constructor(filter: TapFilter, closed: () => void) {
    this.#filter = filter;
    this.#closed = closed;
  }

  /** `type` undefined: what is about the stream as a whole. */
  wants(client: string, type: TypeUrl | undefined): boolean {
    const filter = this.#filter;
    return (
      (filter.client === undefined || filter.client === client) &&
      (filter.type === undefined || type === undefined || filter.type === type)
    );
  }

  add(message: Tapped): void {
    if (this.#waiting.length >= maxWaiting) this.#lost++;
    else this.#waiting.push(message);
    this.#wake?.();
  }

  /** A stream has ended: if it is the only one that this tap is about, that was all. */
  end(message: Tapped): void {
    if (this.#filter.client !== undefined) this.#over = true;
    this.add(message);
  }

  /** What has passed since the last call; waits until there is something. Undefined: that was all. */
  async next(): Promise<readonly Tapped[] | undefined> {
    while (this.#waiting.length === 0 && !this.#over) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    if (this.#waiting.length === 0) return undefined;
    const taken = this.#waiting;
    this.#waiting = [];
    if (this.#lost > 0) taken.push({ event: 'LOST', lost: this.#lost });
    this.#lost = 0;
    return taken;
  }

  /** Nothing more is wanted; a `next` that waits is answered with what there is. */
  close(): void {
    this.#over = true;
    this.#closed();
    this.#wake?.();
  }
}

/** Read once for all streams that get the same response. */
const contentOf = onceFor(({ nonce, version, resources, changed, removed, bytes }: Response) => {
  const names = changed.slice(0, maxNames).map(({ now }) => now.name);
  return { nonce, version, resources, bytes: bytes.length, names, removed: removed.slice(0, maxNames) };
});

/** In SotW each ACK repeats all names: they are only listed where they are new. */
function namesIn(request: Request, kind: RequestKind): readonly string[] {
  if (request.kind === 'delta') {
    const gone = selected(request.unsubscribe, unsubscribed).map((name) => `-${name}`);
    return [...selected(request.subscribe, subscribed), ...gone];
  }
  return kind === 'subscribe' ? selected(request.subscribe, sotwSelectors) : [];
}

function selected(range: Buffer | undefined, fields: SelectorFields): readonly string[] {
  const read = readSelectors(range, fields);
  return read.ok ? [...read.value.names, ...read.value.locators.map(({ name }) => name)] : [];
}
