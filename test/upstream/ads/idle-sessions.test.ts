import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DeltaDiscoveryRequestSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../../src/model/brand.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import type { Interest } from '../../../src/model/transaction.ts';
import { VariantIndex } from '../../../src/model/variant-index.ts';
import type { Log } from '../../../src/observe/log.ts';
import { AdsUpstream } from '../../../src/upstream/ads/ads-upstream.ts';
import type { ChannelHandler, ChannelStreamHandler } from '../../../src/upstream/ads/grpc-channel.ts';
import type { SessionRule } from '../../../src/upstream/ads/node.ts';
import { InMemoryRelay, put, type } from '../../support/in-memory-relay.ts';
import type { VirtualClock } from '../../support/virtual-clock.ts';
import { workOf } from '../../support/work.ts';
import { deltaResponse, parseItem } from './responses.ts';

const eds = type('eds');
const rule = (key: string): SessionRule => ({ key, to: `node.metadata.${key}` });
const quiet: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => quiet };
const want = (env: string, name = 'a', more: Record<string, string> = {}): Interest => ({
  type: eds,
  selector: resourceName(name),
  parameters: internParameters(Object.entries({ env, ...more })),
});

/** A control plane that cannot be reached. */
const away = () => ({ open: () => ({ write() {}, end() {}, async finish() {} }), close() {} });

/** One that has everything. */
const serving = (clock: VirtualClock, handler: ChannelHandler) => {
  clock.after(0, () => handler.connected());
  const open = (_path: string, _via: string, stream: ChannelStreamHandler) => ({
    write(bytes: Uint8Array): void {
      const { resourceNamesSubscribe: names } = fromBinary(DeltaDiscoveryRequestSchema, bytes);
      if (names.length === 0) return;
      const response = deltaResponse(
        eds,
        '1',
        '1',
        names.map((name) => parseItem(`${name}:1@1`)),
      );
      clock.after(0, () => stream.message(response));
    },
    end() {},
    async finish() {},
  });
  return { open, close() {} };
};

/** A relay whose one upstream may have so many sessions. */
function setting(maxSessions: number, controlPlane: typeof serving = away) {
  const relay = new InMemoryRelay();
  const { clock } = relay;
  const upstream = new AdsUpstream(
    {
      name: 'central',
      claims: { authorities: [], types: [], names: [] },
      endpoints: [{ kind: 'tcp', host: '127.0.0.1', port: 1 }],
      protocol: 'DELTA',
      variants: 'PER_PARAMETERS',
      tls: undefined,
      connectTimeoutMs: 1000,
      resourceTimeoutMs: 15_000,
      keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
      backoff: { initialMs: 1000, maxMs: 1000 },
      failbackAfterMs: 0,
      rules: [rule('env')],
      node: { id: 'r', cluster: 'r', metadata: {}, locality: { region: '', zone: '', subZone: '' } },
      version: '1',
      via: () => '',
      maxConstraintDepth: 8,
      maxSessions: () => maxSessions,
      clock,
      random: () => 0.5,
      log: quiet,
      metrics: { accepted() {}, rejected() {}, reconnect() {}, streamEnd() {}, refused() {} },
      transport: (_, handler) => controlPlane(clock, handler),
    },
    relay.relay,
  );
  relay.relay.replace([upstream]);
  const registry = relay.relay.views.interests;
  const leave = (...interests: Interest[]) => {
    for (const interest of interests) {
      relay.says({ type: eds, puts: [put(eds, interest.selector, 'it')], resolved: [interest] });
      registry.release(interest);
    }
  };
  return {
    clock,
    upstream,
    store: relay.relay.store,
    come: (...interests: Interest[]) => {
      for (const interest of interests) registry.acquire(interest);
    },
    /** They leave something that is worth keeping. */
    leave,
    /** They leave what the control plane has said. */
    release: (...interests: Interest[]) => {
      for (const interest of interests) registry.release(interest);
    },
    go: (...interests: Interest[]) => {
      leave(...interests);
      clock.advance(2000);
    },
    refused: (interest: Interest) => upstream.refusal(interest) !== undefined,
    wanted: () =>
      Array.from(registry.all(), ({ parameters }) => parameters.entries.get('env') ?? '').toSorted(),
  };
}

describe('sessions that only linger', () => {
  it('give way to a new parameter set, the longest idle first', () => {
    const { come, go, refused, wanted, upstream } = setting(3);
    come(want('a'), want('b'), want('c'));
    go(want('b'), want('a'));
    come(want('d'));
    expect(refused(want('d'))).to.equal(false);
    expect(wanted()).to.deep.equal(['a', 'c', 'd']);
    come(want('e'));
    expect(wanted()).to.deep.equal(['c', 'd', 'e']);
    come(want('f'));
    expect(refused(want('f'))).to.equal(true);
    expect(upstream.state().sessions).to.equal(3);
  });

  it('do not while somebody subscribes to one of their interests', () => {
    const { come, go, refused } = setting(1);
    come(want('a', 'x'), want('a', 'y'));
    go(want('a', 'x'));
    come(want('b'));
    expect(refused(want('b'))).to.equal(true);
  });

  it('do not when somebody has come back', () => {
    const { come, go, wanted } = setting(2);
    come(want('a'), want('b'));
    go(want('a'), want('b'));
    come(want('a'));
    come(want('c'));
    expect(wanted()).to.deep.equal(['a', 'c']);
  });

  it('give way to who was refused, as soon as the last subscriber has gone', () => {
    const { come, go, refused, wanted } = setting(1);
    come(want('a'));
    come(want('b', 'x'), want('b', 'y'));
    expect(refused(want('b', 'x'))).to.equal(true);
    go(want('a'));
    expect(refused(want('b', 'x'))).to.equal(false);
    expect(wanted()).to.deep.equal(['b', 'b']);
  });

  it('give way to many who were refused over several turns', () => {
    const { come, leave, refused, clock } = setting(1);
    come(want('a'));
    const many = Array.from({ length: 5000 }, (_, at) => want('b', `n${at}`));
    come(...many);
    leave(want('a'));
    const left = () => many.filter(refused).length;
    expect(left()).to.equal(3000);
    clock.advance(10);
    expect(left()).to.equal(0);
  });

  it('who was refused and has gone is not kept', () => {
    const { come, go, refused, wanted } = setting(1);
    come(want('a'), want('b'));
    expect(refused(want('b'))).to.equal(true);
    go(want('b'));
    expect(refused(want('b'))).to.equal(false);
    expect(wanted()).to.deep.equal(['a']);
    go(want('a'));
    expect(wanted()).to.deep.equal(['a']);
    come(want('b'));
    expect(wanted()).to.deep.equal(['b']);
  });

  it('end with what they have brought, and look at nothing that others have of the type', () => {
    const lookedAt = (count: number): number => {
      const { come, release, clock, store, upstream } = setting(count, serving);
      const all = Array.from({ length: count }, (_, at) => want(`${at}`));
      come(...all);
      clock.advance(10);
      expect(store.variants(eds)).to.equal(count);
      release(...all);
      const looked = workOf(VariantIndex.prototype, ['all', 'get'], () => clock.advance(600_001));
      expect(store.variants(eds)).to.equal(0);
      expect(upstream.state().sessions).to.equal(0);
      return looked;
    };
    expect(lookedAt(80)).to.be.at.most(3 * lookedAt(40));
  });

  it('stay idle under other rules', () => {
    const { come, go, wanted, refused, upstream } = setting(2);
    const west = { zone: 'west' };
    come(want('a', 'x', west), want('b', 'x', west));
    go(want('a', 'x', west));
    upstream.reconfigure([rule('env'), rule('zone')]);
    come(want('c', 'x', west));
    expect(refused(want('c', 'x', west))).to.equal(false);
    expect(wanted()).to.deep.equal(['b', 'c']);
  });

  it('give way where other rules have taken the last interest that somebody subscribes to', () => {
    const { come, go, wanted, refused, upstream } = setting(2);
    const west = want('a', 'x', { zone: 'west' });
    come(want('a', 'y'), west);
    go(want('a', 'y'));
    upstream.reconfigure([rule('env'), rule('zone')]);
    come(want('b'));
    expect(refused(want('b'))).to.equal(false);
    expect(wanted()).to.deep.equal(['a', 'b']);
  });
});
