import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { ClientSession } from './client-session.ts';

/** An HTTP/1.1 connection, as node:http2 shows its sessions. */
export class Http1Session implements ClientSession {
  readonly socket: Socket;
  readonly encrypted: boolean;
  readonly #responses = new Set<ServerResponse>();
  #closed = false;

  constructor(socket: Socket) {
    this.socket = socket;
    this.encrypted = socket instanceof TLSSocket;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get destroyed(): boolean {
    return this.socket.destroyed;
  }

  /** Requests that are not answered yet: a client may send several at once. */
  get open(): number {
    return this.#responses.size;
  }

  /** The connection does not end before this response. */
  begin(response: ServerResponse): void {
    this.#responses.add(response);
    if (this.#closed) response.shouldKeepAlive = false;
    response.once('close', () => {
      this.#responses.delete(response);
      if (this.#closed && this.#responses.size === 0) this.socket.end();
    });
  }

  /** HTTP/1.1 has no GOAWAY: the next response is the last, and without one it ends now. */
  close(): void {
    this.#closed = true;
    for (const response of this.#responses) response.shouldKeepAlive = false;
    if (this.#responses.size === 0) this.socket.end();
  }

  destroy(): void {
    this.socket.destroy();
  }

  on(event: 'close', listener: () => void): this {
    this.socket.on(event, listener);
    return this;
  }
}
