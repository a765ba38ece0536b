import type { Socket } from 'node:net';
import type { Timer } from '../model/clock.ts';
import { addressText } from './peer.ts';
import type { Peer, ServerStream } from './server-stream.ts';

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
  }

  /** Streams live for months: a silent connection that has one is a calm one. */
  isIdleSince(time: number): boolean {
    return this.#calls === 0 && this.#idleSince <= time;
  }

  /** Node would wait for a peer that takes nothing before it closes the socket of a session. */
  destroy(): void {
    this.#socket?.destroy();
  }
}
