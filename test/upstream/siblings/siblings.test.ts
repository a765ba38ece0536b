import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import { type Interest, type Transaction, transaction } from '../../../src/model/transaction.ts';
import type { UpstreamSink } from '../../../src/model/upstream.ts';
import { createLog } from '../../../src/observe/log.ts';
import { AdsUpstream } from '../../../src/upstream/ads/ads-upstream.ts';
import type { ChannelHandler, ChannelStreamHandler } from '../../../src/upstream/ads/grpc-channel.ts';
import { CLAIMS_EVERYTHING } from '../../../src/upstream/claims.ts';
import { Siblings } from '../../../src/upstream/siblings.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, nameOfInterest } from '../../../src/wire/between-relays.ts';
import { interest, says, wild } from '../../cache/persistence/support.ts';
import { InMemoryRelay, put, ScriptedUpstream } from '../../support/in-memory-relay.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';
import { deltaResponse } from '../ads/responses.ts';

const all = interest('cds');
const name = interest('eds', 'a');
const nothing = (): void => {};
/** Longer than any test waits. Milliseconds. */
const backoffMs = 60_000;

/** An upstream with siblings, whose control plane is there or not, and all that it says and hears. */
class World {
  readonly clock = new VirtualClock();
  readonly applied: Transaction[] = [];
  readonly offered: Interest[] = [];
  readonly answered = new Set<Interest>();
  readonly siblings = new Map<string, { readonly upstream: ScriptedUpstream; readonly sink: UpstreamSink }>();
  /** What the name of the siblings has; undefined: it cannot be looked up. */
  addresses: readonly string[] | undefined = ['10.0.0.1', '10.0.0.2'];
  changes = 0;
  /** What a look into the cache takes, in milliseconds. */
  lookMs = 0;
  readonly upstream: AdsUpstream;
  #plane: ChannelHandler | undefined;
  #stream: ChannelStreamHandler | undefined;

  constructor() {
    const { clock } = this;
    const siblings = new Siblings(
      {
        name: 'central',
        address: { kind: 'tcp', host: 'peers', port: 1 },
        lookup: async () => this.addresses ?? Promise.reject(new Error('ENOTFOUND')),
        random: () => 0,
        clock,
        connect: (address, sink) => {
          const upstream = new ScriptedUpstream();
          const host = address.kind === 'tcp' ? address.host : '';
          this.siblings.set(host, { upstream, sink });
          upstream.stop = async () => {
            this.siblings.delete(host);
          };
          return upstream;
        },
        lookupFailed: nothing,
      },
      {
        apply: (said) => this.applied.push(said),
        changed: () => this.changes++,
        prefetch: (one) => {
          this.clock.advance(0.01);
          this.offered.push(one);
        },
        isAnswered: (one) => {
          this.clock.advance(this.lookMs);
          return this.answered.has(one);
        },
        servedBy: (type) => (type === all.type ? 'central' : 'files'),
      },
    );
    this.upstream = new AdsUpstream(
      {
        name: 'central',
        claims: CLAIMS_EVERYTHING,
        endpoints: [{ kind: 'unix', path: '/run/control-plane' }],
        transport: (_, handler) => {
          this.#plane = handler;
          const open = (_path: string, _via: string, stream: ChannelStreamHandler) => {
            this.#stream = stream;
            return { write: nothing, end: nothing, finish: async () => {} };
          };
          return { open, close: nothing };
        },
        protocol: 'DELTA',
        variants: 'PER_PARAMETERS',
        tls: undefined,
        connectTimeoutMs: 1000,
        resourceTimeoutMs: undefined,
        keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
        backoff: { initialMs: backoffMs, maxMs: backoffMs },
        failbackAfterMs: 1000,
        rules: [],
        node: { id: 'r', cluster: 'relays', metadata: {}, locality: { region: '', zone: '', subZone: '' } },
        version: '0',
        via: () => 'r',
        maxConstraintDepth: 8,
        maxSessions: () => 100,
        clock,
        random: () => 1,
        log: createLog({ level: 'error', write: nothing }),
        metrics: {},
      },
      { apply: nothing, restamp: nothing, changed: () => this.changes++ },
      siblings,
    );
    this.upstream.start();
  }

  get asked(): string[][] {
    return [...this.siblings.values()].map(({ upstream }) =>
      [...upstream.interests].filter((one) => one !== ALL_INTERESTS).map(({ selector }) => selector),
    );
  }

  says(host: string, said: Transaction): void {
    this.siblings.get(host)?.sink.apply(said);
  }

  async fails(): Promise<void> {
    this.clock.advance(0);
    this.#plane?.lost('it is away');
    await turn();
  }

  connects(): void {
    this.clock.advance(backoffMs);
    this.#plane?.connected();
  }

  answers(): void {
    this.#stream?.message(deltaResponse(all.type, '1', 'n1', []));
  }
}

describe('an upstream with siblings', () => {
  it('asks all of them, once every endpoint has failed, for what the cache has no answer to', async () => {
    const world = new World();
    world.upstream.subscribe(all);
    world.upstream.subscribe(name);
    world.answered.add(name);
    expect(world.siblings.size).to.equal(0);
    await world.fails();
    expect(world.asked).to.deep.equal([['*'], ['*']]);
    const late = interest('eds', 'b');
    world.upstream.subscribe(late);
    expect(world.asked).to.deep.equal([
      ['*', 'b'],
      ['*', 'b'],
    ]);
    world.upstream.unsubscribe(late);
    expect(world.asked).to.deep.equal([['*'], ['*']]);
  });

  it('takes what is there as last known good, and no removal, full state or error', async () => {
    const world = new World();
    world.upstream.subscribe(all);
    await world.fails();
    const removals = [{ name: name.selector, constraints: put(all.type, 'x', '1').constraints }];
    world.says('10.0.0.1', says('cds', { removals, complete: true }));
    expect(world.applied).to.deep.equal([]);
    world.says('10.0.0.1', says('cds', { resources: { a: '1' }, removals, complete: true, resolved: [all] }));
    const [said] = world.applied;
    expect([said?.holder.restored, said?.complete, said?.removals, said?.resolved]).to.deep.equal([
      true,
      false,
      [],
      [all],
    ]);
    expect(said?.holder.key).not.to.equal(wild.key);
  });

  it('is ready with the first data, stale, and down only when siblings had their time', async () => {
    const world = new World();
    const staleSince = world.clock.now();
    world.upstream.subscribe(all);
    await world.fails();
    expect(world.upstream.state()).to.include({ down: false, everConnected: false });
    world.says('10.0.0.1', says('cds', { resources: { a: '1' }, resolved: [all] }));
    expect(world.upstream.state()).to.include({ everConnected: true, staleSince, connected: false });
    expect(world.upstream.state().fromSiblingsSince, 'it says that it is theirs').to.equal(world.clock.now());
    const { changes } = world;
    world.clock.advance(2000);
    expect(world.upstream.state().down).to.equal(true);
    expect(world.changes).to.equal(changes + 1);
    world.connects();
    world.answers();
    expect(world.upstream.state().fromSiblingsSince, 'the control plane has answered').to.equal(undefined);
  });

  it('waits for siblings with what was asked just now, and with nothing else, however often there is a question', async () => {
    const world = new World();
    const isUnavailable = (one: Interest): boolean => world.upstream.isUnavailable(one);
    world.upstream.subscribe(all);
    expect(isUnavailable(all)).to.equal(false);
    await world.fails();
    expect([all, name].map(isUnavailable)).to.deep.equal([false, false]);
    world.clock.advance(2000);
    expect([all, name].map(isUnavailable)).to.deep.equal([true, true]);
    world.upstream.subscribe(name);
    expect([all, name].map(isUnavailable), 'they may have this one').to.deep.equal([true, false]);
    for (let each = 0; each < 5; each++) {
      const { changes } = world;
      world.clock.advance(1900);
      world.upstream.subscribe(interest('eds', `invented ${each}`));
      expect(world.upstream.state().down).to.equal(true);
      expect(isUnavailable(interest('eds', `invented ${each}`))).to.equal(false);
      const ofOthers = interest('cds', '*', { env: `invented ${each}` });
      world.upstream.subscribe(ofOthers);
      expect(isUnavailable(ofOthers)).to.equal(false);
      expect(isUnavailable(all)).to.equal(true);
      if (each === 1)
        expect(world.changes, 'who waited for the first ones hears of it').to.be.greaterThan(changes);
    }
    expect(isUnavailable(name)).to.equal(true);
    world.clock.advance(3000);
    const { changes } = world;
    world.clock.advance(60_000);
    expect(world.changes, 'nobody waits').to.equal(changes);
  });

  it('asks for what the clients of siblings ask, if it serves that', async () => {
    const world = new World();
    await world.fails();
    const offered = interest('cds', '*', { env: 'prod' });
    const ofAnother = nameOfInterest(name);
    const puts = [nameOfInterest(offered), ofAnother, 'no JSON', '["cds"]', '[1]'].map((text) =>
      put(INTERESTS_TYPE, text, ''),
    );
    world.says('10.0.0.1', transaction({ holder: wild, type: INTERESTS_TYPE, puts }));
    expect(world.offered).to.deep.equal([offered]);
    expect(world.applied).to.deep.equal([]);
  });

  it('what the clients of siblings ask stays for clients that come, however long its answer takes', () => {
    const lab = new InMemoryRelay();
    lab.relay.prefetch(name);
    lab.clock.advance(5000);
    expect([...lab.upstream.interests]).to.deep.equal([name]);
    lab.says({ ...says('eds', { resources: { a: '1' } }), resolved: [name] });
    lab.clock.advance(600_000 - 5001);
    expect(lab.relay.isAnswered(name)).to.equal(true);
    lab.clock.advance(1);
    expect([...lab.upstream.interests]).to.deep.equal([]);
  });

  it('asks for what is on a long list over several turns', async () => {
    const world = new World();
    await world.fails();
    const puts = Array.from({ length: 10_000 }, (_, at) =>
      put(INTERESTS_TYPE, nameOfInterest(interest('cds', `c${at}`)), ''),
    );
    world.says('10.0.0.1', transaction({ holder: wild, type: INTERESTS_TYPE, puts }));
    expect(world.offered.length).to.be.within(1, 1000);
    while (world.offered.length < 10_000) world.clock.turn();
    expect(world.offered.length).to.equal(10_000);
  });

  it('leaves them when the control plane has answered, and hears nothing more of them', async () => {
    const world = new World();
    world.upstream.subscribe(all);
    await world.fails();
    const late = world.siblings.get('10.0.0.1')?.sink;
    world.connects();
    expect(world.siblings.size, 'connected is not answered').to.equal(2);
    world.answers();
    expect(world.siblings.size).to.equal(0);
    late?.apply(says('cds', { resources: { a: '1' } }));
    expect(world.applied).to.deep.equal([]);
  });

  it('looks over several turns at what the cache has, when the control plane goes away', async () => {
    const world = new World();
    const looked: Interest[] = [];
    for (let at = 0; at < 10_000; at++) world.upstream.subscribe(interest('eds', `n${at}`));
    const has = world.answered.has.bind(world.answered);
    world.answered.has = (one) => {
      looked.push(one);
      return has(one);
    };
    world.lookMs = 0.01;
    await world.fails();
    expect(looked.length).to.be.within(1, 1000);
    while (looked.length < 10_000) world.clock.turn();
  });

  it('asks new ones for no name that is answered by then, and for many names over several turns', async () => {
    const world = new World();
    world.lookMs = 0.01;
    const [open, ...names] = Array.from({ length: 10_000 }, (_, at) => interest('eds', `n${at}`));
    const [first] = names;
    if (open === undefined || first === undefined) throw new Error('there are no names');
    for (const one of [all, open, ...names]) world.upstream.subscribe(one);
    await world.fails();
    expect(world.asked[0]?.length).to.be.below(1000);
    while ((world.asked[0]?.length ?? 0) < 10_001) world.clock.turn();
    expect(world.asked.map(({ length }) => length)).to.deep.equal([10_001, 10_001]);
    for (const one of [all, ...names]) world.answered.add(one);
    world.addresses = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];
    world.clock.advance(5000);
    await turn();
    world.clock.advance(0);
    expect(world.asked[2]).to.deep.equal(['*', 'n0']);
    for (const one of [open, first]) world.upstream.unsubscribe(one);
    const left = [...world.siblings.values()].map(({ upstream }) =>
      upstream.journal.filter((one) => one.startsWith('-')),
    );
    expect(left, 'each is told of what it was asked').to.deep.equal([
      ['-eds n0', '-eds n1'],
      ['-eds n0', '-eds n1'],
      ['-eds n0'],
    ]);
  });

  it('looks the name up again: new siblings are asked, those that are gone are left, a failure changes nothing', async () => {
    const world = new World();
    world.upstream.subscribe(all);
    await world.fails();
    world.addresses = ['10.0.0.2', '10.0.0.3'];
    world.clock.advance(5000);
    await turn();
    expect([...world.siblings.keys()]).to.deep.equal(['10.0.0.2', '10.0.0.3']);
    expect(world.asked).to.deep.equal([['*'], ['*']]);
    for (const none of [undefined, []]) {
      world.addresses = none;
      world.clock.advance(5000);
      await turn();
      expect([...world.siblings.keys()]).to.deep.equal(['10.0.0.2', '10.0.0.3']);
    }
  });
});
