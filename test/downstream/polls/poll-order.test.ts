import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Response } from '../../../src/model/subscription.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { prefixLength } from '../../../src/wire/grpc-frames.ts';
import { InMemoryRelay, namedHolder, resources, type } from '../../support/in-memory-relay.ts';
import { testPeer } from '../../support/peers.ts';
import { realPut } from '../../support/real-bodies.ts';

const patience = { milliseconds: 500, unchanged: true, whenUnknown: 'REFUSED' } as const;
const names: Readonly<Record<string, readonly string[]>> = { rds: ['r'] };

/** A client that polls each type by itself. It takes what it is answered with, unless the test says otherwise. */
class PollingClient {
  readonly #lab: InMemoryRelay;
  readonly #id: string;
  readonly #peer = testPeer();
  readonly has = new Map<string, string>();
  /** The types that it accepts. */
  readonly takes = new Set(['cds', 'rds']);
  last: Response | undefined;

  constructor(lab: InMemoryRelay, id: string) {
    this.#lab = lab;
    this.#id = id;
  }

  poll(short: string, takes = this.takes.has(short), resourceNames = names[short] ?? []): string {
    const { polls } = this.#lab.relay;
    const message = create(DiscoveryRequestSchema, {
      node: create(NodeSchema, { id: this.#id }),
      versionInfo: this.has.get(short) ?? '',
      resourceNames: [...resourceNames],
    });
    const bytes = Buffer.from(toBinary(DiscoveryRequestSchema, message));
    const read = polls.read(typeInfo(type(short)), bytes, this.#peer, 'rest');
    if (!read.ok) throw new Error(read.error.message);
    let answer = 'waits';
    polls.ask(read.value, this.#peer, patience, (outcome) => {
      if (outcome.kind !== 'response') {
        answer = outcome.kind === 'unchanged' ? '304' : '503';
        return;
      }
      polls.sent(read.value, outcome, outcome.response.bytes);
      this.last = outcome.response;
      const { bytes } = outcome.response;
      if (takes) this.has.set(short, outcome.response.version);
      answer = Object.keys(resources(fromBinary(DiscoveryResponseSchema, bytes.subarray(prefixLength))))
        .toSorted()
        .join(' ');
    });
    this.#lab.settle();
    return answer;
  }

  /** All that it polls, in turn. */
  round(...types: readonly string[]): readonly string[] {
    return types.map((short) => `${short} ${this.poll(short)}`);
  }
}

describe('a client that polls while types change apart (§8.6, §8.7)', () => {
  let lab: InMemoryRelay;
  let client: PollingClient;

  const clusters = (...all: readonly string[]): void =>
    lab.says({
      type: type('cds'),
      complete: true,
      puts: all.map((name) => realPut('cds', name, { type: 'EDS' })),
    });

  const route = (to: string, name = 'r'): void => {
    const routes = [{ match: { prefix: '/' }, route: { cluster: to } }];
    const virtualHosts = [{ name: 'all', domains: ['*'], routes }];
    lab.says({ type: type('rds'), holder: namedHolder, puts: [realPut('rds', name, { virtualHosts })] });
  };

  /** Polled every five seconds, and everything accepted. */
  beforeEach(() => {
    lab = new InMemoryRelay({ limits: { removalGraceMilliseconds: 15_000 } });
    client = new PollingClient(lab, 'a');
    client.round('cds', 'rds');
    clusters('old');
    route('old');
    for (let at = 0; at < 3; at++) {
      client.round('cds', 'rds');
      lab.clock.advance(5000);
    }
    expect(client.round('cds', 'rds')).to.deep.equal(['cds 304', 'rds 304']);
  });

  it('a cluster stays until its routes have changed and the client has polled with their version', () => {
    clusters('new');
    expect(client.round('cds', 'cds')).to.deep.equal(['cds new old', 'cds 304']);
    route('new');
    expect(client.round('rds', 'cds')).to.deep.equal(['rds r', 'cds 304']);
    expect(client.round('rds', 'cds', 'cds')).to.deep.equal(['rds 304', 'cds new', 'cds 304']);
  });

  it('routes wait until the client has polled with the version of their clusters', () => {
    clusters('new');
    route('new');
    expect(client.round('rds', 'cds', 'rds')).to.deep.equal(['rds 304', 'cds new old', 'rds 304']);
    expect(client.round('cds', 'rds', 'cds')).to.deep.equal(['cds 304', 'rds r', 'cds 304']);
    expect(client.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds new']);
  });

  it('routes wait for two of its intervals, removals for three, and it is counted', () => {
    route('nowhere');
    expect(client.poll('rds')).to.equal('304');
    lab.clock.advance(5000);
    expect(client.poll('rds')).to.equal('304');
    lab.clock.advance(5000);
    clusters('new');
    // It never says that it has taken the routes.
    client.takes.delete('rds');
    for (const answer of ['new old', '304', '304', 'new']) {
      client.poll('rds');
      expect(client.poll('cds')).to.equal(answer);
      lab.clock.advance(5000);
    }
    expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([
      'overdue rds missing nowhere',
      'overdue cds removal old',
    ]);
  });

  it('a client of clusters alone is told of removals at once', () => {
    const alone = new PollingClient(lab, 'b');
    alone.round('cds', 'cds');
    clusters('new');
    expect(alone.poll('cds')).to.equal('new');
  });

  it('what was answered and not taken is answered again, with what stays', () => {
    clusters('new');
    expect(client.poll('cds', false)).to.equal('new old');
    expect(client.poll('cds', false)).to.equal('new old');
    expect(client.poll('cds')).to.equal('new old');
    expect(client.poll('cds')).to.equal('304');
  });

  it('a client that begins anew is answered with what there is', () => {
    clusters('new');
    client.has.clear();
    expect(client.round('cds', 'rds')).to.deep.equal(['cds new', 'rds r']);
  });

  it('a client that comes from another relay with what is there is up to date', () => {
    const other = new PollingClient(lab, 'b');
    for (const [short, version] of client.has) other.has.set(short, version);
    expect(other.round('cds', 'rds')).to.deep.equal(['cds 304', 'rds 304']);
    clusters('new');
    other.poll('rds');
    expect(other.poll('cds')).to.equal('new old');
  });

  it('clients that still need the same share the response', () => {
    const other = new PollingClient(lab, 'b');
    for (const [short, version] of client.has) other.has.set(short, version);
    other.round('cds', 'rds');
    clusters('new');
    client.poll('cds');
    other.poll('cds');
    expect(other.last).to.equal(client.last);
  });

  it('what a client polls in vain, it does not have', () => {
    client.poll('rds', true, ['unknown']);
    clusters('new');
    route('new');
    client.round('cds', 'cds', 'rds', 'rds');
    expect(client.poll('cds')).to.equal('new');
  });

  it('of a client that polls thousands of names apart, the first thousand are waited for', () => {
    const many = new PollingClient(lab, 'many');
    many.round('cds', 'cds');
    for (let at = 0; at < 999; at++) {
      many.poll('rds', true, [`r-${at}`]);
      route('other', `r-${at}`);
      many.has.delete('rds');
      const answers = [1, 2].map(() => many.poll('rds', true, [`r-${at}`]));
      expect(answers).to.deep.equal([`r-${at}`, '304']);
    }
    many.has.delete('rds');
    many.round('rds', 'rds');
    clusters('new');
    expect(many.poll('cds')).to.equal('new');
    expect(client.poll('cds')).to.equal('new old');
  });
});
