import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import {
  addressesTransport,
  type Channel,
  type ChannelHandler,
  type Transport,
} from '../../../src/upstream/ads/grpc-channel.ts';
import type { Address, Lookup } from '../../../src/wire/address.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';

const named: Address = { kind: 'tcp', host: 'planes', port: 7 };

/** Tries at the addresses of a name, and what becomes of them. */
class World {
  readonly clock = new VirtualClock();
  /** The addresses that were tried, in order. */
  readonly tried: string[] = [];
  readonly events: string[] = [];
  /** What the name has; undefined: it cannot be looked up; 'never': no answer. */
  addresses: readonly string[] | undefined | 'never' = ['a', 'b', 'c'];
  reachable = new Set<string>();
  random = 0;
  closed = 0;
  handler: ChannelHandler | undefined;
  readonly #transport: Transport;

  constructor() {
    const inner: Transport = (endpoint, handler, name) => {
      const host = endpoint.kind === 'tcp' ? endpoint.host : endpoint.path;
      this.tried.push(name === undefined ? host : `${host} as ${name}`);
      this.handler = handler;
      queueMicrotask(() =>
        this.reachable.has(host) ? handler.connected() : handler.lost(`${host} refused`),
      );
      const channel: Channel = {
        open: () => ({ write: () => {}, end: () => {}, finish: async () => {} }),
        close: () => {
          this.closed++;
        },
      };
      return channel;
    };
    const lookup: Lookup = () => {
      const { addresses } = this;
      if (addresses === 'never') return new Promise(() => {});
      return addresses === undefined ? Promise.reject(new Error('no server')) : Promise.resolve(addresses);
    };
    this.#transport = addressesTransport(inner, lookup, {
      random: () => this.random,
      clock: this.clock,
      connectTimeoutMs: 5000,
    });
  }

  /** One try: which addresses were tried. */
  async try(endpoint = named): Promise<{ readonly channel: Channel; readonly tried: readonly string[] }> {
    this.tried.length = 0;
    const channel = this.#transport(endpoint, {
      connected: () => this.events.push('connected'),
      lost: (reason) => this.events.push(reason),
    });
    await turn();
    return { channel, tried: [...this.tried] };
  }
}

describe('the addresses of a host name', () => {
  it('are tried in random order until one is connected; the name stays the name', async () => {
    const world = new World();
    world.reachable.add('b');
    expect((await world.try()).tried).to.deep.equal(['a as planes', 'b as planes']);
    world.random = 0.99;
    expect((await world.try()).tried).to.deep.equal(['c as planes', 'a as planes', 'b as planes']);
    expect(world.events).to.deep.equal(['connected', 'connected']);
  });

  it('have failed together: once, with every reason', async () => {
    const world = new World();
    await world.try();
    expect(world.events).to.deep.equal(['a refused; b refused; c refused']);
  });

  it('are looked up at each try, and a lookup without an answer keeps the last ones', async () => {
    const world = new World();
    world.addresses = ['a'];
    await world.try();
    world.addresses = ['d'];
    expect((await world.try()).tried).to.deep.equal(['d as planes']);
    for (const none of [undefined, []]) {
      world.addresses = none;
      expect((await world.try()).tried).to.deep.equal(['d as planes']);
    }
    world.addresses = 'never';
    expect((await world.try()).tried).to.deep.equal([]);
    world.clock.advance(5000);
    expect(world.tried).to.deep.equal(['d as planes']);
  });

  it('unknown: the reason says which name and why', async () => {
    const world = new World();
    world.addresses = undefined;
    await world.try();
    world.addresses = [];
    await world.try();
    world.addresses = 'never';
    await world.try();
    world.clock.advance(5000);
    expect(world.events).to.deep.equal([
      'planes: no server',
      'planes: the name has no addresses',
      'planes: not looked up within 5 s',
    ]);
  });

  it('one that was connected and given up comes last; one whose connection ended does not', async () => {
    const world = new World();
    world.reachable = new Set(['a', 'b']);
    const { channel } = await world.try();
    channel.close();
    expect((await world.try()).tried).to.deep.equal(['b as planes']);
    world.handler?.lost('reset');
    expect(world.events.at(-1)).to.equal('reset');
    world.addresses = ['b'];
    expect((await world.try()).tried).to.deep.equal(['b as planes']);
  });

  it('a try that is given up before the lookup tries nothing', async () => {
    const world = new World();
    world.addresses = 'never';
    const { channel } = await world.try();
    channel.close();
    world.clock.advance(5000);
    expect([world.tried, world.events]).to.deep.equal([[], []]);
  });

  it('an address is no name', async () => {
    const world = new World();
    world.addresses = undefined;
    expect((await world.try({ kind: 'tcp', host: '127.0.0.1', port: 7 })).tried).to.deep.equal(['127.0.0.1']);
    expect((await world.try({ kind: 'unix', path: '/run/cp' })).tried).to.deep.equal(['/run/cp']);
  });
});
