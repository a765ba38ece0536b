import { createConnection } from 'node:net';
import { type Client, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import type { Clock } from '../../src/model/clock.ts';
import { spread } from '../../src/wire/client-connections.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import type { ServerStream } from '../../src/wire/server-stream.ts';
import { nextMessage, openCall, type RawCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { closeServers, serve } from './serve.ts';

/** Time that passes when it is told to. */
class ManualClock implements Clock {
  #now = 0;
  #waiting: { readonly at: number; readonly run: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now;
  }
  after(milliseconds: number, run: () => void): { cancel(): void } {
    const entry = { at: this.#now + milliseconds, run };
    this.#waiting.push(entry);
    return {
      cancel: () => {
        this.#waiting = this.#waiting.filter((other) => other !== entry);
      },
    };
  }
  advance(milliseconds: number): void {
    const until = this.#now + milliseconds;
    for (;;) {
      const next = this.#waiting.toSorted((a, b) => a.at - b.at)[0];
      if (next === undefined || next.at > until) break;
      this.#waiting = this.#waiting.filter((other) => other !== next);
      this.#now = next.at;
      next.run();
    }
    this.#now = until;
  }
}

describe('drain', () => {
  const clients: Client[] = [];

  async function calls(address: string, count: number): Promise<RawCall[]> {
    const made: RawCall[] = [];
    for (let n = 0; n < count; n++) {
      const one = rawClient(address);
      clients.push(one);
      const call = openCall(one, '/a.B/C');
      call.write(Buffer.from('x'));
      await nextMessage(call);
      made.push(call);
    }
    return made;
  }

  /** Takes no notice of the client's end: xDS streams live until the server ends them. */
  function stubborn(stream: ServerStream): void {
    stream.handle({
      message: (bytes) => void stream.write(frameOf(bytes)),
      ended: () => undefined,
      drained: () => undefined,
      closed: () => undefined,
    });
  }

  afterEach(async () => {
    for (const open of clients.splice(0)) open.close();
    await closeServers();
  });

  it('ends are spread evenly over the time, in random order, each once', () => {
    const clock = new ManualClock();
    const ended: number[] = [];
    let seed = 1;
    const random = (): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed / 2_147_483_647;
    };
    spread(Array(1000).keys(), 1000, clock, random, (item) => ended.push(item));
    const counts = [];
    for (let n = 0; n < 10; n++) {
      clock.advance(100);
      counts.push(ended.length);
    }
    expect(counts).to.deep.equal([100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]);
    expect(new Set(ended).size).to.equal(1000);
    expect(ended).to.not.deep.equal(ended.toSorted((a, b) => a - b));
  });

  it('streams end UNAVAILABLE "draining", new connections are refused, and it resolves when all is closed', async () => {
    const server = await serve({ accept: () => stubborn });
    const open = await calls(server.address, 3);
    const statuses = open.map(statusOf);
    await server.drain(1000);
    for (const one of await Promise.all(statuses)) {
      expect(one.code).to.equal(status.UNAVAILABLE);
      expect(one.details).to.match(/^draining/);
    }
    const late = rawClient(server.address);
    clients.push(late);
    expect((await statusOf(openCall(late, '/a.B/C'))).code).to.equal(status.UNAVAILABLE);
  });

  it('each stream hears why it ends, however short the time is', async () => {
    for (const milliseconds of [0, 50]) {
      const server = await serve({ accept: () => stubborn });
      const statuses = (await calls(server.address, 20)).map(statusOf);
      await server.drain(milliseconds);
      for (const one of await Promise.all(statuses)) expect(one.details).to.match(/^draining/);
    }
  });

  it('what does not end, and what never spoke, is cut at the deadline', async () => {
    const streams: ServerStream[] = [];
    const accept = (stream: ServerStream): void => {
      streams.push(stream);
      stubborn(stream);
    };
    const server = await serve({ accept: () => accept });
    const [call] = await calls(server.address, 1);
    if (call === undefined) throw new Error('no call');
    const ended = statusOf(call);
    call.pause();
    for (let n = 0; n < 20; n++) streams[0]?.write(frameOf(Buffer.alloc(1 << 20))); // its client does not read on
    const [host, port] = server.address.split(':');
    const silent = createConnection(Number(port), host);
    silent.on('error', () => undefined).resume();
    const cut = new Promise((resolve) => silent.once('close', resolve));
    await server.drain(100);
    await cut;
    expect((await ended).code).to.not.equal(status.OK);
    expect(server.streams).to.equal(0);
  });

  it('a second drain is the first one', async () => {
    const server = await serve();
    expect(server.drain(10)).to.equal(server.drain(10_000));
    await server.drain(0);
  });
});
