import type { Socket } from 'node:net';
import type { Timer } from '../model/clock.ts';
import type { Waiting } from './accounts.ts';
import { addressText } from './peer.ts';
import type { Peer, ServerStream } from './server-stream.ts';

/**
 * So many requests that have to wait may come on a connection before it is read no further. Clients have fewer streams,
 * so a region that comes back from one address at once is read as it comes.
 */
const mostUnserved = 8;

/** What is known of a connection, for all its streams. */
export class ClientConnection {
  readonly peer: Peer;
  /** Its hot calls, only where it may have to end before them: at an age, or when its authority goes. */
  readonly calls: Set<ServerStream> | undefined;
  /** The next step towards its end. */
  timer: Timer | undefined;
  /** `timer` is its end: nothing else may take its place. */
  isEnding = false;
  /** When its certificate ends, by the clock. */
  readonly validUntil: number | undefined;
  readonly #socket: Socket | undefined;
  #calls = 0;
  /** Requests that had to wait since it was read on. */
  #unserved = 0;
  #reading: Waiting | undefined;
  #isFull = false;
  /** Since when it has no call, if it has none. */
  #idleSince: number;

  constructor(
    peer: Peer,
    socket: Socket | undefined,
    calls: Set<ServerStream> | undefined,
    now: number,
    validUntil?: number,
  ) {
    this.peer = peer;
    this.calls = calls;
    this.#socket = socket;
    this.validUntil = validUntil;
    // A socket remembers what it was asked once. That is a system call, cheap beside a connection.
    void socket?.remoteAddress;
    this.#idleSince = now;
  }

  /** Of the peer: it can be read when the connection is over, too. */
  get address(): string {
    const { remoteAddress, remotePort } = this.#socket ?? {};
    return remoteAddress === undefined ? this.peer.address : addressText(remoteAddress, remotePort);
  }

  opened(): void {
    this.#calls++;
  }

  closed(now: number): void {
    if (--this.#calls === 0) this.#idleSince = now;
    if (!this.#isFull || this.#socket === undefined) return;
    this.#isFull = false;
    this.#readLater(this.#socket);
  }

  /**
   * A request came while its peer had to wait. HTTP/2 and HTTP/1.1 make requests of all that is read, which is up to
   * 64 KB at once, before anybody sees the first: where many come, nothing more is read until the peer's turn.
   */
  unserved(): void {
    if (++this.#unserved <= mostUnserved || this.#socket === undefined) return;
    // Node itself may have begun to read again meanwhile.
    stopReading(this.#socket);
    if (!this.#isFull) this.#readLater(this.#socket);
  }

  /** Pipelining: so many requests are open that nothing more is read before some are answered. */
  full(): void {
    this.#isFull = true;
    this.#reading?.cancel();
    this.#reading = undefined;
    if (this.#socket !== undefined) stopReading(this.#socket);
  }

  #readLater(socket: Socket): void {
    this.#reading ??= this.peer.account.readLater(() => {
      this.#reading = undefined;
      this.#unserved = 0;
      startReading(socket);
    });
  }

  /** Streams live for months: a silent connection that has one is a calm one. */
  isIdleSince(time: number): boolean {
    return this.#calls === 0 && this.#idleSince <= time;
  }

  /** Node would wait for a peer that takes nothing before it closes the socket of a session. */
  destroy(): void {
    this.#socket?.destroy();
  }

  /** The connection is over. */
  ended(): void {
    this.timer?.cancel();
    this.#reading?.cancel();
  }
}

interface SocketHandle {
  readonly reading?: boolean;
  readStart(): void;
  readStop(): void;
}

const isHandle = (handle: unknown): handle is SocketHandle =>
  typeof handle === 'object' && handle !== null && 'readStart' in handle && 'readStop' in handle;

/**
 * Node's HTTP servers read from this below the socket, whose `pause` means nothing to them. It is not documented: where
 * it is missing, nothing is stopped.
 */
function handleOf(socket: Socket): SocketHandle | undefined {
  const handle: unknown = Reflect.get(socket, '_handle');
  return isHandle(handle) ? handle : undefined;
}

export function stopReading(socket: Socket): void {
  handleOf(socket)?.readStop();
}

/** Unless Node itself has stopped: it begins again itself. */
export function startReading(socket: Socket): void {
  const handle = handleOf(socket);
  if (handle?.reading !== false) handle?.readStart();
}
