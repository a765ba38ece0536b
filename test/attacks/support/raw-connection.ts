import { once } from 'node:events';
import type { Socket } from 'node:net';
import { block, callFields, type Fields, frameHeader, headers, PREFACE, settings, Type } from './frames.ts';
import { connectTo, type Target } from './target.ts';

export interface RawOptions {
  /** Sent after the preface. */
  readonly settings?: readonly (readonly [number, number])[];
  /** Sent in the same segment. */
  readonly first?: Uint8Array;
  /** Takes nothing that the relay sends. */
  readonly deaf?: boolean;
}

/** An HTTP/2 connection of which every byte is the attack's own; what comes back is counted. */
export class RawConnection implements Disposable {
  /** How many frames of each type came. */
  readonly seen = new Map<number, number>();
  /** The error code of GOAWAY. */
  goaway: number | undefined;
  /** Streams that were reset, and with which code. */
  readonly resets = new Map<number, number>();
  /** Streams that ended, however. */
  readonly ended = new Set<number>();
  /** Bytes of DATA by stream. */
  readonly received = new Map<number, Buffer[]>();
  readonly #socket: Socket;
  #pending: Buffer = Buffer.alloc(0);
  #lastStream = -1;

  constructor(socket: Socket, { deaf = false }: RawOptions = {}) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    if (deaf) socket.pause();
  }

  /** Connected, with preface and SETTINGS sent and the relay's SETTINGS received. */
  static async open(target: Target, options: RawOptions = {}): Promise<RawConnection> {
    const connection = new RawConnection(await connectTo(target), options);
    const { first = Buffer.alloc(0) } = options;
    await connection.send(PREFACE, settings(...(options.settings ?? [])), first);
    if (options.deaf !== true) await connection.until(() => connection.count(Type.SETTINGS) > 0, 'SETTINGS');
    return connection;
  }

  get closed(): boolean {
    return this.#socket.destroyed || this.#socket.readableEnded;
  }

  count(type: number): number {
    return this.seen.get(type) ?? 0;
  }

  data(stream: number): Buffer {
    return Buffer.concat(this.received.get(stream) ?? []);
  }

  /** Opens a stream for a call and returns its number. */
  async call(path: string, more: Fields = [], flags?: number): Promise<number> {
    const stream = this.next();
    await this.send(headers(stream, block(callFields(path, more)), flags));
    return stream;
  }

  /** The number of the next stream. */
  next(): number {
    this.#lastStream += 2;
    return this.#lastStream;
  }

  /** Writes, and waits until the relay has taken most of it; false if the relay has closed the connection. */
  async send(...chunks: readonly Uint8Array[]): Promise<boolean> {
    if (this.#socket.destroyed || !this.#socket.writable) return false;
    if (!this.#socket.write(Buffer.concat(chunks))) {
      const closing = new AbortController();
      const { signal } = closing;
      await Promise.race([
        once(this.#socket, 'drain', { signal }),
        once(this.#socket, 'close', { signal }),
      ]).catch(() => undefined);
      closing.abort();
    }
    return !this.#socket.destroyed;
  }

  /** Sends it again and again, in portions, for so long at most or until the relay closes the connection. */
  async flood(portion: Uint8Array, { bytes, milliseconds }: FloodBounds): Promise<void> {
    const deadline = performance.now() + milliseconds;
    for (let sent = 0; sent < bytes && performance.now() < deadline; sent += portion.length) {
      const taken = this.send(portion);
      // A relay that reads nothing more has won as well.
      if (!(await within(taken, deadline - performance.now()))) return;
    }
  }

  /** Waits until the relay has closed it, or said GOAWAY. */
  async isEnded(milliseconds?: number): Promise<void> {
    await this.until(
      () => this.closed || this.goaway !== undefined,
      'the end of the connection',
      milliseconds,
    );
  }

  /** Waits until it holds, told by what arrives. */
  async until(holds: () => boolean, what: string, milliseconds = 30_000): Promise<void> {
    const deadline = performance.now() + milliseconds;
    while (!holds()) {
      const left = deadline - performance.now();
      if (left <= 0) throw new Error(`no ${what} for ${milliseconds} ms; ${this.#state()}`);
      if (this.closed) throw new Error(`no ${what}: the relay closed the connection; ${this.#state()}`);
      await this.#something(left);
    }
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }

  async #something(milliseconds: number): Promise<void> {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), milliseconds);
    const { signal } = stop;
    const events = ['data', 'close', 'end'].map((name) => once(this.#socket, name, { signal }));
    await Promise.race(events).catch(() => undefined);
    clearTimeout(timer);
    stop.abort();
    await Promise.allSettled(events);
  }

  #state(): string {
    const frames = Object.entries(Type).flatMap(([name, type]) =>
      this.count(type) > 0 ? [`${this.count(type)} ${name}`] : [],
    );
    return `it sent ${frames.join(', ') || 'nothing'}, GOAWAY ${this.goaway ?? 'none'}`;
  }

  #take(chunk: Buffer): void {
    let at = 0;
    const bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (bytes.length - at >= frameHeader) {
      const length = bytes.readUIntBE(at, 3);
      const end = at + frameHeader + length;
      if (end > bytes.length) break;
      const [type = 0, flags = 0] = bytes.subarray(at + 3, at + 5);
      this.#frame(type, flags, bytes.readUInt32BE(at + 5), bytes.subarray(at + frameHeader, end));
      at = end;
    }
    this.#pending = bytes.subarray(at);
  }

  #frame(type: number, flags: number, stream: number, payload: Buffer): void {
    this.seen.set(type, this.count(type) + 1);
    if (type === Type.GOAWAY) this.goaway = payload.readUInt32BE(4);
    if (type === Type.RST_STREAM) this.resets.set(stream, payload.readUInt32BE(0));
    if (type === Type.DATA) this.received.set(stream, [...(this.received.get(stream) ?? []), payload]);
    const ends = (type === Type.DATA || type === Type.HEADERS) && (flags & 1) === 1;
    if (ends || type === Type.RST_STREAM) this.ended.add(stream);
  }
}

interface FloodBounds {
  readonly bytes: number;
  readonly milliseconds: number;
}

/** What `done` says, or false if it takes longer. */
async function within(done: Promise<boolean>, milliseconds: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), Math.max(0, milliseconds));
  try {
    return await Promise.race([done, promise]);
  } finally {
    clearTimeout(timer);
  }
}
