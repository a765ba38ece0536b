import { randomInt } from 'node:crypto';
import type { Http2SecureServer, Http2Server, Http2Session } from 'node:http2';
import type { Server, Socket } from 'node:net';
import type { Clock, Timer } from '../model/clock.ts';
import { Connection } from './connection.ts';
import { connectionWindow, idlePatience, unixWindow } from './http2-settings.ts';
import { peerOf } from './peer.ts';
import type { GrpcStatus } from './status.ts';
import { Code } from './status.ts';
import type { ServerStream } from './transport.ts';

export interface ConnectionsOptions {
  readonly clock: Clock;
  /** In [0, 1). */
  readonly random?: (() => number) | undefined;
  /** The path that is listened on, if it is a Unix socket. */
  readonly unixPath: string | undefined;
  /** Asked for each connection, in milliseconds: how old it may become, give or take a tenth. Undefined: any age. */
  readonly maxAge?: (() => number | undefined) | undefined;
}

const aged: GrpcStatus = {
  code: Code.UNAVAILABLE,
  message: 'this connection is older than xds.max_connection_age: connect again',
};
/** After GOAWAY, what is under way on an old connection has so long; a tenth of short ages. Milliseconds. */
const longestGrace = 5000;

/** How often idle connections are looked for, in milliseconds. */
const patrolPeriod = 10_000;

/** The connections of one listener, from the first byte to the last, and what ends them. */
export class Connections {
  readonly #options: ConnectionsOptions;
  /** All of them, those that are within their TLS handshake too. */
  readonly #sockets = new Set<Socket>();
  readonly #sessions = new Map<Http2Session, Connection>();
  /** The one whose session is being made: Node makes it while it tells of the socket. */
  #arriving: Socket | undefined;
  #watch: Timer | undefined;
  #draining = false;

  /** `listener` accepts; what it accepts is handed on to `http2`, which listens nowhere itself. */
  constructor(listener: Server, http2: Http2Server | Http2SecureServer, options: ConnectionsOptions) {
    this.#options = options;
    listener.on('connection', (socket) => {
      this.#accepted(socket);
      http2.emit('connection', socket);
    });
    const ready = 'setSecureContext' in http2 ? 'secureConnection' : 'connection';
    http2.prependListener(ready, (socket: Socket) => {
      this.#arriving = socket;
    });
    http2.on('session', (session) => this.#opened(session));
    this.#patrol();
  }

  /** How many are open. */
  get size(): number {
    return this.#sockets.size;
  }

  of(session: Http2Session | undefined): Connection | undefined {
    return session && this.#sessions.get(session);
  }

  /** GOAWAY on all of them. What is open there goes on. */
  beginDrain(): void {
    this.#draining = true;
    for (const session of this.#sessions.keys()) session.close();
  }

  /** Cuts what is left. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop(): void {
    this.#watch?.cancel();
  }

  #accepted(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
  }

  #opened(session: Http2Session): void {
    const { clock, unixPath } = this.#options;
    const socket = this.#arriving;
    this.#arriving = undefined;
    const connection = new Connection(peerOf(session, unixPath), socket, clock.now());
    this.#sessions.set(session, connection);
    session.on('close', () => {
      this.#sessions.delete(session);
      connection.age?.timer.cancel();
    });
    session.setLocalWindowSize(unixPath === undefined ? connectionWindow : unixWindow);
    if (this.#draining) session.close();
    // There is no other replica behind a Unix socket.
    else if (unixPath === undefined) this.#limitAge(session, connection);
  }

  /** So that clients spread again over replicas that have come since (contract, xds.max_connection_age). */
  #limitAge(session: Http2Session, connection: Connection): void {
    const { clock, maxAge, random = systemRandom } = this.#options;
    const oldest = maxAge?.();
    if (oldest === undefined) return;
    const grace = Math.min(longestGrace, oldest / 10);
    const calls = new Set<ServerStream>();
    const timer = clock.after(oldest * (0.9 + 0.2 * random()), () => {
      session.close(); // GOAWAY: what is open goes on
      age.timer = clock.after(grace, () => {
        for (const call of calls) call.end(aged);
        // Whatever still does not end, such as a watch of the health service.
        age.timer = clock.after(grace, () => session.destroy());
      });
    });
    const age = { calls, timer };
    connection.age = age;
  }

  /** One look at all of them from time to time costs less than a timer for each. */
  #patrol(): void {
    this.#watch = this.#options.clock.after(patrolPeriod, () => {
      this.#endIdle(idlePatience);
      this.#patrol();
    });
  }

  /** Clients connect again when they have something to ask. GOAWAY first; the next time, what did not heed it is cut. */
  #endIdle(patience: number): void {
    const latest = this.#options.clock.now() - patience;
    for (const [session, connection] of this.#sessions) {
      if (!connection.isIdleSince(latest)) continue;
      if (session.closed) connection.cut();
      else session.close();
    }
  }
}

export function systemRandom(): number {
  return randomInt(2 ** 32) / 2 ** 32;
}
