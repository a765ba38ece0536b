import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { type AdsStream, ControlPlane } from '../../upstream/ads/control-plane.ts';
import { frame, settings, Type } from './frames.ts';

/** A control plane that speaks gRPC and then says what an attack wants; in between it is silent. */
export class HostilePlane implements AsyncDisposable {
  readonly #plane = new ControlPlane();

  static async start(): Promise<HostilePlane> {
    const created = new HostilePlane();
    await created.#plane.listen();
    return created;
  }

  get address(): string {
    return `127.0.0.1:${this.#plane.port}`;
  }

  /** As often as the relay asks, for so long: `say` answers. Resolves when it has been asked and the time is over. */
  async says(say: (stream: AdsStream) => void, ask: () => void, milliseconds: number): Promise<void> {
    const { promise: asked, resolve } = Promise.withResolvers<void>();
    this.#plane.answer = (stream) => {
      resolve();
      say(stream);
    };
    for (const stream of this.#plane.openStreams) say(stream);
    // What has ended a stream is asked again ever more rarely, and a client without an answer may have been sent away.
    const again = setInterval(ask, 1000);
    try {
      ask();
      await asked;
      const deadline = performance.now() + milliseconds;
      while (performance.now() < deadline) await turn();
    } finally {
      clearInterval(again);
      this.#plane.answer = () => {};
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#plane.kill();
    return Promise.resolve();
  }
}

/** A server of HTTP/2 of which every byte is the attack's own. */
export class RawPlane implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** What happens on each connection after SETTINGS. */
  #attack: (socket: Socket) => void = () => {};

  private constructor() {
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async start(): Promise<RawPlane> {
    const created = new RawPlane();
    created.#server.listen(0, '127.0.0.1');
    await once(created.#server, 'listening');
    return created;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Does this to the connection that the relay has, and to those that it makes, for so long. */
  async does(attack: (socket: Socket) => void, milliseconds: number): Promise<void> {
    this.#attack = attack;
    if (this.#sockets.size === 0) await once(this.#server, 'connection');
    for (const socket of this.#sockets) attack(socket);
    const deadline = performance.now() + milliseconds;
    while (performance.now() < deadline) await turn();
    this.#attack = () => {};
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    // Whatever the relay says: what is wrong is on this side.
    socket.resume();
    socket.write(Buffer.concat([settings(), frame(Type.SETTINGS, 1, 0)]));
    this.#attack(socket);
  }
}
