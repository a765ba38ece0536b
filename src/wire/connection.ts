import type { Socket } from 'node:net';
import type { Timer } from '../model/clock.ts';
import type { Peer, ServerStream } from './transport.ts';

/** What is known of a connection, for all its streams. */
export class Connection {
  readonly peer: Peer;
  /** Only where connections have an age to end at: its hot calls, and when that is looked at next. */
  age: { readonly calls: Set<ServerStream>; timer: Timer } | undefined;
  readonly #socket: Socket | undefined;
  #calls = 0;
  /** Since when it has no call, if it has none. */
  #idleSince: number;

  constructor(peer: Peer, socket: Socket | undefined, now: number) {
    this.peer = peer;
    this.#socket = socket;
    this.#idleSince = now;
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
  cut(): void {
    this.#socket?.destroy();
  }
}
