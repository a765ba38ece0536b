import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import { type Interest, type Transaction, transaction } from '../../../src/model/transaction.ts';
import type { UpstreamSink, UpstreamState } from '../../../src/model/upstream.ts';
import { UpstreamWithSiblings } from '../../../src/upstream/siblings.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, nameOfInterest } from '../../../src/wire/via.ts';
import { interest, says, wild } from '../../cache/persistence/support.ts';
import { put, ScriptedUpstream } from '../../support/in-memory-relay.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';

const all = interest('cds');
const name = interest('eds', 'a');

/** A control plane that is there or not. */
class Plane extends ScriptedUpstream {
  isStale = true;

  override state(): UpstreamState {
    return { ...super.state(), everConnected: !this.isStale, staleSince: this.isStale ? 1 : undefined };
  }

  reconfigure(): void {}

  reannounce(): boolean {
    return false;
  }
}

/** An upstream with siblings, and all that it says and hears. */
class World {
  readonly clock = new VirtualClock();
  readonly plane = new Plane();
  readonly applied: Transaction[] = [];
  readonly offered: Interest[] = [];
  readonly answered = new Set<Interest>();
  readonly siblings = new Map<string, { readonly upstream: ScriptedUpstream; readonly sink: UpstreamSink }>();
  /** What the name of the siblings has; undefined: it cannot be looked up. */
  addresses: readonly string[] | undefined = ['10.0.0.1', '10.0.0.2'];
  changes = 0;
  readonly upstream: UpstreamWithSiblings;
  #planeSink: UpstreamSink | undefined;

  constructor() {
    this.upstream = new UpstreamWithSiblings(
      {
        name: 'script',
        address: { kind: 'tcp', host: 'peers', port: 1 },
        lookup: async () => this.addresses ?? Promise.reject(new Error('ENOTFOUND')),
        random: () => 0,
        clock: this.clock,
        connect: (address, sink) => {
          const upstream = new ScriptedUpstream();
          const host = address.kind === 'tcp' ? address.host : '';
          this.siblings.set(host, { upstream, sink });
          upstream.stop = async () => {
            this.siblings.delete(host);
          };
          return upstream;
        },
        lookupFailed: () => {},
      },
      (sink) => {
        this.#planeSink = sink;
        return this.plane;
      },
      { apply: () => {}, restamp: () => {}, changed: () => this.changes++ },
      {
        apply: (said) => this.applied.push(said),
        offered: (one) => this.offered.push(one),
        isAnswered: (one) => this.answered.has(one),
      },
    );
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
    this.plane.down = true;
    this.#planeSink?.changed();
    await turn();
  }

  recovers(): void {
    this.plane.down = false;
    this.plane.isStale = false;
    this.#planeSink?.changed();
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
    world.upstream.subscribe(all);
    await world.fails();
    expect(world.upstream.state()).to.include({ down: false, everConnected: false });
    world.says('10.0.0.1', says('cds', { resources: { a: '1' }, resolved: [all] }));
    expect(world.upstream.state()).to.include({ everConnected: true, staleSince: 1, connected: false });
    expect(world.upstream.state().fromSiblingsSince, 'it says that it is theirs').to.equal(world.clock.now());
    const { changes } = world;
    world.clock.advance(2000);
    expect(world.upstream.state().down).to.equal(true);
    expect(world.changes).to.equal(changes + 1);
    world.upstream.subscribe(name);
    expect(world.upstream.state().down, 'they may have this one').to.equal(false);
    world.clock.advance(2000);
    expect(world.upstream.state().down).to.equal(true);
    world.recovers();
    expect(world.upstream.state().fromSiblingsSince, 'the control plane has answered').to.equal(undefined);
  });

  it('asks for what the clients of siblings ask', async () => {
    const world = new World();
    await world.fails();
    const offered = interest('cds', '*', { env: 'prod' });
    const puts = [nameOfInterest(offered), 'no JSON', '["cds"]', '[1]'].map((text) =>
      put(INTERESTS_TYPE, text, ''),
    );
    world.says('10.0.0.1', transaction({ holder: wild, type: INTERESTS_TYPE, puts }));
    expect(world.offered).to.deep.equal([offered]);
    expect(world.applied).to.deep.equal([]);
  });

  it('leaves them when the control plane has answered, and hears nothing more of them', async () => {
    const world = new World();
    world.upstream.subscribe(all);
    await world.fails();
    const late = world.siblings.get('10.0.0.1')?.sink;
    world.plane.down = false;
    expect(world.siblings.size, 'connected is not answered').to.equal(2);
    world.recovers();
    expect(world.siblings.size).to.equal(0);
    late?.apply(says('cds', { resources: { a: '1' } }));
    expect(world.applied).to.deep.equal([]);
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
