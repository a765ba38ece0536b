import { LOAD_PATH } from '../../src/model/load.ts';
import type {
  Channel,
  ChannelHandler,
  ChannelStream,
  ChannelStreamHandler,
  Transport,
} from '../../src/upstream/ads/grpc-channel.ts';
import { Code, type GrpcStatus } from '../../src/wire/grpc-status.ts';
import type { Peer, ServerStream, StreamHandler } from '../../src/wire/server-stream.ts';
import { testPeer } from '../support/peers.ts';
import type { EventLoop } from './event-loop.ts';
import { describeReport, readAsked, readReport } from './load-messages.ts';
import { describe, describeRequest, readDelta, readSotw } from './messages.ts';
import { Random } from './random.ts';
import type { Note } from './violation.ts';

/** Something that serves streams: a control plane or a relay. */
export interface Host {
  readonly id: string;
  /** `deaf`: connects and never answers. */
  readonly reachable: 'up' | 'down' | 'deaf';
  accept(call: Call): void;
  /** Connections that end when it dies. */
  readonly connections: Set<Connection>;
}

/** What the network asks of whoever watches a run. */
export interface NetworkOptions {
  readonly loop: EventLoop;
  readonly seed: number;
  readonly note: Note;
  /** A relay wrote though it had been told to wait. */
  readonly overrun: (connection: Connection) => void;
  /** A load report of a relay was written, and not read when its connection broke. */
  readonly lost: (report: Uint8Array) => void;
}

/** How long a try waits for an endpoint that does not answer, in milliseconds. */
const connectTimeout = 2000;

export class Network {
  readonly options: NetworkOptions;
  /** Whoever connects. */
  readonly peer = testPeer();
  #count = 0;

  constructor(options: NetworkOptions) {
    this.options = options;
  }

  get loop(): EventLoop {
    return this.options.loop;
  }

  connect(from: string, host: Host): Connection {
    const random = new Random(this.options.seed, 'connection', ++this.#count);
    const latency = random.chance(0.2) ? random.between(50, 150) : random.between(1, 20);
    return new Connection(this, `${from}→${host.id}`, host, latency);
  }

  /** The seam below the relay's upstream: an endpoint's path is a host's id. */
  dialer(from: string, hosts: ReadonlyMap<string, Host>, seen: (connection: Connection) => void): Transport {
    return (endpoint, handler) => {
      const host = endpoint.kind === 'unix' ? hosts.get(endpoint.path) : undefined;
      if (host === undefined) throw new Error('there is no such host');
      const link = new SimulatedLink(this, from, host, handler);
      seen(link.connection);
      return link;
    };
  }
}

/**
 * Two peers, some milliseconds apart. What is sent on it arrives in order, whichever stream it is on, as on one
 * HTTP/2 connection.
 */
export class Connection {
  readonly name: string;
  readonly host: Host;
  readonly latency: number;
  readonly network: Network;
  readonly #calls = new Set<Call>();
  /** Responses that the reader has not taken, of all streams. */
  readonly #arrived: { readonly call: Call; readonly take: () => void }[] = [];
  /** Called when it dies, unless its owner closed it. */
  lost: ((reason: string) => void) | undefined;
  /** A stream begins or fails on it. */
  stirred: ((begins: boolean) => void) | undefined;
  /** A response to a relay is written on it. What this returns runs when the relay is about to take it. */
  spoken: (() => () => void) | undefined;
  #open = true;
  #stalled = false;
  /** The reader is slow: each write is taken, and the next must wait. */
  slow = false;

  constructor(network: Network, name: string, host: Host, latency: number) {
    this.network = network;
    this.name = name;
    this.host = host;
    this.latency = latency;
    host.connections.add(this);
  }

  get open(): boolean {
    return this.#open;
  }

  get stalled(): boolean {
    return this.#stalled;
  }

  /** After the way there or back. */
  later(run: () => void): void {
    this.network.loop.after(this.latency, run);
  }

  call(path: string, handler: ChannelStreamHandler): Call {
    const call = new Call(this, path, handler);
    this.#calls.add(call);
    if (path !== LOAD_PATH) this.stirred?.(true);
    this.later(() => {
      if (call.live && this.host.reachable === 'up') this.host.accept(call);
    });
    return call;
  }

  forget(call: Call): void {
    this.#calls.delete(call);
  }

  /** The reader takes nothing for a while. */
  stall(milliseconds: number): void {
    if (this.#stalled) return;
    this.#stalled = true;
    this.network.loop.after(milliseconds, () => this.unstall());
  }

  unstall(): void {
    if (!this.#stalled) return;
    this.#stalled = false;
    this.#flush();
    for (const call of [...this.#calls]) call.drain();
  }

  /** A response is there. */
  arrived(call: Call, take: () => void): void {
    this.#arrived.push({ call, take });
    if (this.#stalled) return;
    this.#flush();
    call.drain();
  }

  #flush(): void {
    while (!this.#stalled) {
      const next = this.#arrived.shift();
      if (next === undefined) return;
      if (next.call.live) next.take();
    }
  }

  /** The streams of a method end. */
  cut(path: string, reason: string): void {
    for (const call of [...this.#calls]) if (call.path === path) call.cut(reason);
  }

  /** Both ends learn of it; what was on its way is lost. */
  kill(reason: string): void {
    if (!this.#open) return;
    this.close();
    this.network.loop.after(0, () => this.lost?.(reason));
  }

  /** Its owner ends it. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.host.connections.delete(this);
    for (const call of [...this.#calls]) call.cut('the connection was lost');
  }
}

/** One stream: its server's end is a ServerStream, its client's end what a link gives. */
export class Call implements ServerStream {
  readonly path: string;
  readonly peer: Peer;
  readonly waitedMilliseconds = 0;
  readonly connection: Connection;
  readonly #client: ChannelStreamHandler;
  #server: StreamHandler | undefined;
  #live = true;
  #paused = false;
  #blocked = false;
  readonly #requests: { readonly bytes: Buffer; readonly arrived: (() => void) | undefined }[] = [];
  /** Hears of each frame as the server writes it, and again when the client gets it. */
  written: ((frame: Buffer) => () => void) | undefined;
  /** Hears of each message when the server has read it. */
  taken: ((message: Buffer) => void) | undefined;

  constructor(connection: Connection, path: string, client: ChannelStreamHandler) {
    this.connection = connection;
    this.peer = connection.network.peer;
    this.path = path;
    this.#client = client;
  }

  get live(): boolean {
    return this.#live;
  }

  // The client's end.

  /** `arrived` runs just before the server gets it, `lost` if it never will. */
  send(bytes: Uint8Array, arrived?: () => void, lost?: () => void): void {
    const copy = Buffer.from(bytes);
    this.connection.later(() => {
      if (!this.#live) {
        lost?.();
        return;
      }
      this.#requests.push({ bytes: copy, arrived });
      this.#read();
    });
  }

  cancel(): void {
    if (!this.#live) return;
    this.#live = false;
    this.connection.forget(this);
    this.connection.later(() => this.#server?.closed());
  }

  // The server's end.

  header(): string | undefined {
    return undefined;
  }

  handle(handler: StreamHandler): void {
    this.#server = handler;
    this.#read();
  }

  write(frame: Buffer): boolean {
    if (!this.#live) return true;
    if (this.#blocked) this.connection.network.options.overrun(this.connection);
    const deliver = this.written?.(frame);
    const hear = this.path === LOAD_PATH ? undefined : this.connection.spoken?.();
    this.connection.later(() =>
      this.connection.arrived(this, () => {
        hear?.();
        if (deliver === undefined) this.#client.message(frame.subarray(5));
        else deliver();
      }),
    );
    this.#blocked = this.connection.stalled || this.connection.slow;
    return !this.#blocked;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#read();
  }

  end(status: GrpcStatus): void {
    if (!this.#live) return;
    this.connection.later(() => {
      if (!this.#live) return;
      this.#live = false;
      this.connection.forget(this);
      this.#client.closed(`${status.code}: ${status.message}`, status.code);
      this.#server?.closed();
    });
  }

  // The network between.

  /** The client has taken what has arrived. */
  drain(): void {
    if (!this.#blocked) return;
    this.connection.later(() => {
      if (!this.#live || !this.#blocked || this.connection.stalled) return;
      this.#blocked = false;
      this.#server?.drained();
    });
  }

  cut(reason: string): void {
    if (!this.#live) return;
    this.#live = false;
    this.connection.forget(this);
    this.connection.later(() => this.#server?.closed());
    this.connection.network.loop.after(0, () => this.#client.closed(reason, Code.UNAVAILABLE));
  }

  #read(): void {
    while (this.#server !== undefined && this.#live && !this.#paused) {
      const next = this.#requests.shift();
      if (next === undefined) return;
      next.arrived?.();
      const copy = this.taken && Buffer.from(next.bytes);
      this.peer.account.charge(next.bytes, (bytes) => this.#server?.message(bytes));
      if (copy !== undefined) this.taken?.(copy);
      next.bytes.fill(0xaa); // the buffer is used again (wire/server-stream.ts)
    }
  }
}

/** A try of a relay at an endpoint. */
class SimulatedLink implements Channel {
  readonly connection: Connection;
  #over = false;

  constructor(network: Network, from: string, host: Host, handler: ChannelHandler) {
    this.connection = network.connect(from, host);
    this.connection.lost = (reason) => {
      if (this.#over) return;
      this.#over = true;
      handler.lost(reason);
    };
    const { reachable } = host;
    if (reachable === 'down') {
      this.connection.later(() => this.connection.kill('refused'));
      return;
    }
    const timeout = network.loop.after(connectTimeout, () => this.connection.kill('no connection in time'));
    this.connection.later(() => {
      if (this.#over || !this.connection.open || host.reachable === 'down') {
        this.connection.kill('refused');
        return;
      }
      timeout.cancel();
      handler.connected();
    });
  }

  open(path: string, _via: string, handler: ChannelStreamHandler): ChannelStream {
    if (path === LOAD_PATH) return this.#openLoad(handler);
    const { name, network } = this.connection;
    const { note } = network.options;
    const delta = path.includes('/Delta');
    const call = this.connection.call(path, {
      message: (bytes) => {
        note(() => `  ${name}: ← ${describe(delta ? readDelta(bytes) : readSotw(bytes))}`);
        if (handler.message(bytes)) this.#proceed(handler);
        return false;
      },
      proceed: () => handler.proceed(),
      closed: (reason, code) => {
        this.connection.stirred?.(false);
        handler.closed(reason, code);
      },
    });
    return {
      write: (bytes) => {
        note(() => `  ${name}: → ${describeRequest(delta ? 'DELTA' : 'SOTW', bytes)}`);
        call.send(bytes);
      },
      end: () => call.cancel(),
      finish: async () => call.cancel(),
    };
  }

  /** What is written takes the first half of the way to be sent, and may be lost on the second. */
  #openLoad(handler: ChannelStreamHandler): ChannelStream {
    const { connection } = this;
    const { name, network } = connection;
    const { note, lost, loop } = network.options;
    const call = connection.call(LOAD_PATH, {
      message: (bytes) => {
        note(() => `  ${name}: ← ${JSON.stringify(readAsked(bytes))}`);
        return handler.message(bytes);
      },
      proceed: () => false,
      closed: (reason, code) => handler.closed(reason, code),
    });
    return {
      write: (bytes, written) => {
        const copy = Buffer.from(bytes);
        note(() => `  ${name}: → ${describeReport(readReport(copy))}`);
        let isWritten = false;
        call.send(copy, undefined, () => isWritten && lost(copy));
        if (written === undefined) return;
        loop.after(connection.latency / 2, () => {
          if (!call.live) return;
          isWritten = true;
          written();
        });
      },
      end: () => call.cancel(),
      finish: async () => connection.later(() => call.cancel()),
    };
  }

  /** Whatever comes next comes in between. */
  #proceed(handler: ChannelStreamHandler): void {
    this.connection.network.loop.after(0, () => {
      if (handler.proceed()) this.#proceed(handler);
    });
  }

  close(): void {
    this.#over = true;
    this.connection.close();
  }
}
