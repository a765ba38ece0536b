import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Access } from '../../../src/model/access.ts';
import type { Response } from '../../../src/model/subscription.ts';
import { atOnce } from '../../../src/model/time-slices.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { ALLOW_ALL, compileAuthorization } from '../../../src/security/authorization.ts';
import { prefixLength } from '../../../src/wire/grpc-frames.ts';
import { namePatterns } from '../../security/name-patterns.ts';
import { InMemoryRelay, namedHolder, resources, type } from '../../support/in-memory-relay.ts';
import { testPeer } from '../../support/peers.ts';
import { realPut } from '../../support/real-bodies.ts';

/** As over REST, in milliseconds. */
const longest = 500;
const names: Readonly<Record<string, readonly string[]>> = { rds: ['r'], eds: ['old'] };

/** A client that polls each type by itself. It takes what it is answered with, unless the test says otherwise. */
class PollingClient {
  readonly #lab: InMemoryRelay;
  readonly #id: string;
  readonly #peer = testPeer();
  readonly has = new Map<string, string>();
  /** The types that it accepts. */
  readonly takes = new Set(['cds', 'rds', 'eds']);
  metadata: Record<string, string> = {};
  last: Response | undefined;

  constructor(lab: InMemoryRelay, id: string) {
    this.#lab = lab;
    this.#id = id;
  }

  /** `key`: of what it has, where it polls names of a type apart. */
  poll(
    short: string,
    takes = this.takes.has(short),
    resourceNames = names[short] ?? [],
    key = short,
  ): string {
    const { polls } = this.#lab.relay;
    const message = create(DiscoveryRequestSchema, {
      node: create(NodeSchema, { id: this.#id, metadata: this.metadata }),
      versionInfo: this.has.get(key) ?? '',
      resourceNames: [...resourceNames],
    });
    const bytes = Buffer.from(toBinary(DiscoveryRequestSchema, message));
    const read = atOnce(polls.read(typeInfo(type(short)), bytes, this.#peer, 'rest'));
    if (!read.ok) throw new Error(read.error.status.message);
    let answer = 'waits';
    atOnce(
      polls.ask(read.value, this.#peer, longest, (outcome) => {
        if (outcome.kind !== 'response') {
          answer = outcome.kind === 'unchanged' ? '304' : '503';
          return;
        }
        polls.sent(read.value, outcome, outcome.response.bytes);
        this.last = outcome.response;
        const { bytes } = outcome.response;
        if (takes) this.has.set(key, outcome.response.version);
        answer = Object.keys(resources(fromBinary(DiscoveryResponseSchema, bytes.subarray(prefixLength))))
          .toSorted()
          .join(' ');
      }),
    );
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
  let limits: { removalGraceMilliseconds: number; maxResponseBytes?: number };
  let access: Access;

  const clusters = (...all: readonly string[]): void =>
    lab.says({
      type: type('cds'),
      complete: true,
      puts: all.map((name) => realPut('cds', name, { type: 'EDS' })),
    });

  const route = (to: string, name = 'r', prefix = '/'): void => {
    const routes = [{ match: { prefix }, route: { cluster: to } }];
    const virtualHosts = [{ name: 'all', domains: ['*'], routes }];
    lab.says({ type: type('rds'), holder: namedHolder, puts: [realPut('rds', name, { virtualHosts })] });
  };

  const endpoints = (name: string): void =>
    lab.says({ type: type('eds'), holder: namedHolder, puts: [realPut('eds', name, {})] });

  /** Polled every five seconds, and everything accepted. */
  beforeEach(() => {
    limits = { removalGraceMilliseconds: 15_000 };
    access = ALLOW_ALL;
    lab = new InMemoryRelay({ limits, access: () => access });
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

  it('a cluster goes at once if the answer would be too large with it', () => {
    const { length } = client.last?.bytes ?? Buffer.alloc(0);
    limits.maxResponseBytes = 3 * length;
    clusters('new');
    expect(client.round('cds', 'cds')).to.deep.equal(['cds new', 'cds 304']);
  });

  it('routes wait until the client has polled with the version of their clusters', () => {
    clusters('new');
    route('new');
    expect(client.round('rds', 'cds', 'rds')).to.deep.equal(['rds 304', 'cds new old', 'rds 304']);
    expect(client.round('cds', 'rds', 'cds')).to.deep.equal(['cds 304', 'rds r', 'cds 304']);
    expect(client.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds new']);
  });

  it('routes wait for three of its intervals, removals for nine, and it is counted', () => {
    route('nowhere');
    for (let at = 0; at < 3; at++) {
      expect(client.round('cds', 'rds')).to.deep.equal(['cds 304', 'rds 304']);
      lab.clock.advance(5000);
    }
    clusters('new');
    // It never says that it has taken the routes.
    client.takes.delete('rds');
    for (const answer of ['new old', ...Array<string>(8).fill('304'), 'new']) {
      client.poll('rds');
      expect(client.poll('cds')).to.equal(answer);
      lab.clock.advance(5000);
    }
    expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([
      'overdue rds missing nowhere',
      'overdue cds removal old',
    ]);
  });

  it('routes wait no longer where clusters change with each of its polls', () => {
    clusters('old', 'new');
    route('new');
    client.poll('cds');
    for (let at = 0; at < 6; at++) {
      expect(client.poll('rds')).to.equal('304');
      lab.clock.advance(5000);
      clusters('old', 'new', `other-${at}`);
      client.poll('cds');
    }
    expect(client.poll('rds')).to.equal('r');
  });

  it('routes wait until the client has polled the endpoints of their clusters, and accepted them', () => {
    endpoints('old');
    client.round('eds', 'eds');
    clusters('old', 'new');
    client.round('cds', 'cds');
    route('new');
    expect(client.poll('rds')).to.equal('304');
    endpoints('new');
    client.has.delete('eds');
    expect([client.poll('eds', true, ['new']), client.poll('rds')]).to.deep.equal(['new', '304']);
    expect([client.poll('eds', true, ['new']), client.poll('rds')]).to.deep.equal(['304', 'r']);
  });

  it('routes wait for each change of clusters, also after one whose endpoints never came', () => {
    endpoints('old');
    client.round('eds', 'eds');
    clusters('old', 'lost');
    client.round('cds', 'cds');
    client.has.delete('eds');
    client.poll('eds', true, ['lost']);
    for (let at = 0; at < 5; at++) {
      lab.clock.advance(5000);
      client.round('cds', 'rds');
    }
    clusters('old', 'lost', 'new');
    expect(client.round('cds', 'cds')).to.deep.equal(['cds lost new old', 'cds 304']);
    route('new');
    expect(client.poll('rds')).to.equal('304');
    endpoints('new');
    expect([client.poll('eds', true, ['new']), client.poll('rds')]).to.deep.equal(['new', '304']);
    expect([client.poll('eds', true, ['new']), client.poll('rds')]).to.deep.equal(['304', 'r']);
  });

  it('a client that polls less often than every minute keeps what it refers to, too', () => {
    for (let at = 0; at < 6; at++) {
      lab.clock.advance(110_000);
      client.round('cds', 'rds');
    }
    clusters('new');
    expect(client.poll('cds')).to.equal('new old');
    lab.clock.advance(110_000);
    expect(client.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds 304']);
    route('new');
    expect(client.round('rds', 'rds', 'cds')).to.deep.equal(['rds r', 'rds 304', 'cds new']);
  });

  it('what a client does not poll any more keeps nothing after its own three intervals', () => {
    clusters('new');
    for (const answer of ['new old', '304', '304', 'new']) {
      expect(client.poll('cds')).to.equal(answer);
      lab.clock.advance(5000);
    }
  });

  it('a cluster that is gone stays where a client polls it by name, too, and first', () => {
    const both = new PollingClient(lab, 'both');
    both.poll('cds', true, ['old']);
    both.has.delete('cds');
    both.round('cds', 'rds', 'rds');
    both.poll('cds');
    route('new');
    expect(both.poll('rds')).to.equal('304');
    clusters('new');
    expect(both.round('cds', 'cds', 'rds')).to.deep.equal(['cds new old', 'cds 304', 'rds r']);
  });

  it('back and forth: what comes back is not removed, and the client has it', () => {
    for (const [to, answer, round] of [
      ['new', 'new old', ['rds 304', 'cds 304', 'rds r']],
      ['old', '304', ['rds r', 'cds 304', 'rds 304']],
      ['new', '304', ['rds r', 'cds 304', 'rds 304']],
    ] as const) {
      clusters(to);
      expect(client.poll('cds')).to.equal(answer);
      route(to);
      expect(client.round('rds', 'cds', 'rds')).to.deep.equal(round);
    }
    expect(client.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds new']);
  });

  it('two polls of one type at once are both answered with what stays', () => {
    clusters('new');
    expect([client.poll('cds', false), client.poll('cds', true)]).to.deep.equal(['new old', 'new old']);
    expect(client.poll('cds')).to.equal('304');
  });

  it('removal_grace: 0s, set while something stays: the next poll is told, and routes wait for no clusters', () => {
    clusters('new');
    expect(client.poll('cds')).to.equal('new old');
    limits.removalGraceMilliseconds = 0;
    expect(client.round('cds', 'cds')).to.deep.equal(['cds new', 'cds 304']);
    route('nowhere');
    expect(client.poll('rds')).to.equal('r');
    clusters('newer');
    expect(client.round('cds', 'cds')).to.deep.equal(['cds newer', 'cds 304']);
    expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([]);
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

  describe('that moves to the cohort of canaries, and back', () => {
    const move = (to: Access): void => {
      access = to;
      lab.relay.polls.rereadRequests();
    };

    beforeEach(() => lab.relay.gate.gatedTypes(new Set([type('cds'), type('rds')])));

    it('a cluster stays until its routes have changed', () => {
      clusters('new');
      route('new');
      expect(client.round('cds', 'rds', 'cds')).to.deep.equal(['cds new old', 'rds 304', 'cds 304']);
      move(ALLOW_ALL.ofCanaries);
      expect(client.round('cds', 'rds', 'cds')).to.deep.equal(['cds 304', 'rds r', 'cds 304']);
      expect(client.round('rds', 'cds', 'cds')).to.deep.equal(['rds 304', 'cds new', 'cds 304']);
      move(ALLOW_ALL);
      expect(client.round('rds', 'cds', 'cds', 'rds')).to.deep.equal([
        'rds 304',
        'cds new old',
        'cds 304',
        'rds r',
      ]);
    });

    it('routes wait for their clusters', () => {
      const old = realPut('cds', 'old', { type: 'EDS', connectTimeout: '2s' });
      lab.says({ type: type('cds'), complete: true, puts: [old] });
      route('old', 'r', '/changed');
      move(ALLOW_ALL.ofCanaries);
      expect(client.round('cds', 'rds', 'cds', 'rds')).to.deep.equal([
        'cds old',
        'rds 304',
        'cds 304',
        'rds r',
      ]);
    });
  });

  /** Rules have changed, and what is done about that in slices is done. */
  const reload = async (): Promise<void> => {
    lab.relay.polls.reidentify();
    for (let turn = 0; turn < 100; turn++) await Promise.resolve();
    lab.settle();
  };

  it('what stays does so over a reload', async () => {
    clusters('new');
    expect(client.poll('cds')).to.equal('new old');
    await reload();
    expect(client.poll('cds')).to.equal('304');
    route('new');
    expect(client.round('rds', 'rds', 'cds')).to.deep.equal(['rds r', 'rds 304', 'cds new']);
  });

  it('a name that is new after a reload makes nothing forgotten of what other names led to', async () => {
    const routes = (name: string): string => client.poll('rds', true, [name], name);
    for (const name of ['r1', 'r2']) routes(name);
    for (const name of ['r1', 'r2']) route('old', name);
    for (const name of ['r1', 'r2', 'r1', 'r2']) routes(name);
    route('new');
    clusters('old', 'new');
    client.round('cds', 'cds', 'rds', 'rds');
    clusters('new');
    expect(client.poll('cds')).to.equal('304');
    lab.clock.advance(1);
    await reload();
    route('new', 'r3');
    for (const name of ['r3', 'r3']) routes(name);
    expect(client.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds 304']);
    route('new', 'r1');
    route('new', 'r2');
    for (const name of ['r1', 'r2', 'r1', 'r2']) routes(name);
    expect(client.poll('cds')).to.equal('new');
  });

  it('what a client may not see any more after a reload goes at once', async () => {
    clusters('new');
    expect(client.poll('cds')).to.equal('new old');
    access = compileAuthorization([
      { types: [type('cds')], names: namePatterns(['old']), allow: false },
      { allow: true },
    ]).accessOf(testPeer());
    await reload();
    expect(client.round('cds', 'cds')).to.deep.equal(['cds new', 'cds 304']);
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

  it('a client that comes from another relay keeps what there is until it has polled all of its types', () => {
    const other = new PollingClient(lab, 'b');
    for (const [short, version] of client.has) other.has.set(short, version);
    other.poll('cds');
    clusters('new');
    expect(other.poll('cds')).to.equal('new old');
    expect(other.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds 304']);
    lab.clock.advance(5000);
    expect(other.round('rds', 'cds')).to.deep.equal(['rds 304', 'cds 304']);
    route('new');
    expect(other.round('rds', 'rds', 'cds')).to.deep.equal(['rds r', 'rds 304', 'cds 304']);
    for (const answer of ['cds 304', 'cds new']) {
      lab.clock.advance(5000);
      expect(other.round('cds', 'rds')).to.deep.equal([answer, 'rds 304']);
    }
  });

  it('a client that comes from another relay with earlier routes waits for their clusters', () => {
    const other = new PollingClient(lab, 'b');
    for (const [short, version] of client.has) other.has.set(short, version);
    other.poll('cds');
    clusters('new');
    route('new');
    expect(other.round('rds', 'cds', 'cds', 'rds')).to.deep.equal([
      'rds 304',
      'cds new old',
      'cds 304',
      'rds r',
    ]);
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

  it('clients that are too many to be known do not drive out those that are', () => {
    clusters('new');
    const many = Array.from({ length: 1000 }, (_, at) => `r-${at}`);
    for (let at = 0; at < 2200; at++) new PollingClient(lab, `other-${at}`).poll('rds', true, many);
    expect(client.poll('cds')).to.equal('new old');
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
