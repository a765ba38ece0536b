import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import type { PollOutcome, ReadPoll } from '../../../src/downstream/polls/polls.ts';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../../src/model/constraints.ts';
import { atOnce, type InTurns } from '../../../src/model/time-slices.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { ALLOW_ALL } from '../../../src/security/authorization.ts';
import { Cursor } from '../../../src/views/cursor.ts';
import { Code } from '../../../src/wire/grpc-status.ts';
import { encodeStatus } from '../../../src/wire/responses.ts';
import type { Peer } from '../../../src/wire/server-stream.ts';
import { InMemoryRelay, namedHolder, nameOf, node, put, type } from '../../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../../support/peers.ts';

/** How long each waits, in milliseconds. */
const longest = { rest: 500, fetch: 15_000 };

interface Asked {
  outcome: PollOutcome | undefined;
  readonly giveUp: () => void;
}

class Poller {
  readonly lab: InMemoryRelay;
  readonly #peer: Peer;
  #read: ReadPoll | undefined;

  constructor(lab: InMemoryRelay, peer = testPeer()) {
    this.lab = lab;
    this.#peer = peer;
  }

  ask(
    short: string,
    request: MessageInitShape<typeof DiscoveryRequestSchema>,
    transport: keyof typeof longest = 'rest',
    from = this.#peer,
  ): Asked {
    const asked = { outcome: undefined };
    const giveUp = atOnce(this.inTurns(asked, short, request, transport, from));
    this.lab.settle();
    return Object.assign(asked, { giveUp });
  }

  *inTurns(
    asked: { outcome: PollOutcome | undefined },
    short: string,
    request: MessageInitShape<typeof DiscoveryRequestSchema>,
    transport: keyof typeof longest,
    from = this.#peer,
  ): InTurns<() => void> {
    const { polls } = this.lab.relay;
    const bytes = toBinary(
      DiscoveryRequestSchema,
      create(DiscoveryRequestSchema, { node: create(NodeSchema, node()), ...request }),
    );
    const read = yield* polls.read(typeInfo(type(short)), Buffer.from(bytes), from, transport);
    if (!read.ok) {
      asked.outcome = { kind: 'refused', ...read.error };
      return () => {};
    }
    this.#read = read.value;
    return yield* polls.ask(read.value, from, longest[transport], (outcome) => {
      if (asked.outcome !== undefined) throw new Error('answered twice');
      asked.outcome = outcome;
    });
  }

  get last(): ReadPoll | undefined {
    return this.#read;
  }
}

function shown({ outcome }: Asked): string {
  switch (outcome?.kind) {
    case undefined:
      return 'waits';
    case 'refused':
      return `refused ${outcome.status.code}`;
    case 'unchanged':
      return 'unchanged';
    default:
      return namesOf(outcome).join();
  }
}

const messageOf = (outcome: PollOutcome | undefined) => {
  if (outcome?.kind !== 'response') throw new Error(`no response: ${JSON.stringify(outcome)}`);
  return fromBinary(DiscoveryResponseSchema, outcome.response.bytes.subarray(5));
};
const namesOf = (outcome: PollOutcome | undefined): readonly string[] =>
  messageOf(outcome).resources.map(nameOf);
const versionOf = ({ outcome }: Asked): string => messageOf(outcome).versionInfo;

describe('polls', () => {
  let lab: InMemoryRelay;
  let poller: Poller;

  beforeEach(() => {
    lab = new InMemoryRelay();
    poller = new Poller(lab);
  });

  it('§7.3 unchanged is said only of the version of everything that is asked for', () => {
    const first = poller.ask('eds', { resourceNames: ['a'] });
    expect(shown(first)).to.equal('waits');
    lab.says({
      type: type('eds'),
      holder: namedHolder,
      puts: [put(type('eds'), 'a', '1'), put(type('eds'), 'b', '1')],
    });
    expect(shown(first)).to.equal('a');
    const versionInfo = versionOf(first);
    expect(shown(poller.ask('eds', { resourceNames: ['a'], versionInfo }))).to.equal('unchanged');

    const more = poller.ask('eds', { resourceNames: ['a', 'b'], versionInfo });
    lab.says({ type: type('eds'), holder: namedHolder });
    expect(shown(more)).to.equal('a,b');
    expect(versionOf(more)).to.not.equal(versionInfo);
  });

  it('what a client says is kept in short: a version that nobody has, and as much of an error as a log line', () => {
    poller.ask('eds', {
      resourceNames: ['a'],
      versionInfo: 'x'.repeat(1_000_000),
      errorDetail: { code: 3, message: 'y'.repeat(1_000_000) },
    });
    expect(poller.last?.version).to.have.lengthOf(64);
    expect(poller.last?.error?.message.length).to.be.at.most(4096);
    poller.ask('eds', { resourceNames: ['a'], versionInfo: 'x'.repeat(1024) });
    expect(poller.last?.version).to.have.lengthOf(1024);
  });

  it('§7.3 each answer holds all of it, for types whose streams get only what changed', () => {
    poller.ask('eds', { resourceNames: ['a', 'b'] });
    const puts = ['a', 'b'].map((name) => put(type('eds'), name, '1'));
    lab.says({ type: type('eds'), holder: namedHolder, puts });
    const versionInfo = versionOf(poller.ask('eds', { resourceNames: ['a', 'b'] }));
    lab.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'b', '2')] });
    expect(shown(poller.ask('eds', { resourceNames: ['a', 'b'], versionInfo }))).to.equal('a,b');
  });

  it('§7.4 what is unknown is waited for, and told as soon as it is known', () => {
    const waiting = [poller.ask('cds', {}), poller.ask('cds', {})];
    expect(waiting.map(shown)).to.deep.equal(['waits', 'waits']);
    lab.full('cds', { shop: '1' });
    expect(waiting.map(shown)).to.deep.equal(['shop', 'shop']);
  });

  const cases = [
    { what: 'a wildcard', short: 'cds', names: [], known: [], version: '', is: 'refused 14' },
    { what: 'no name of LDS', short: 'lds', names: ['a'], known: [], version: '', is: 'refused 14' },
    { what: 'a part of LDS', short: 'lds', names: ['a', 'b'], known: ['a'], version: '', is: 'a' },
    {
      what: 'a part of LDS, of a client that may have the rest',
      short: 'lds',
      names: ['a', 'b'],
      known: ['a'],
      version: 'x',
      is: 'refused 14',
    },
    { what: 'no name of EDS', short: 'eds', names: ['a'], known: [], version: '', is: 'refused 14' },
    { what: 'a part of EDS', short: 'eds', names: ['a', 'b'], known: ['a'], version: 'x', is: 'a' },
  ];
  for (const { what, short, names, known, version, is } of cases) {
    it(`§3.9 §7.4 half a second later ${what} is known: ${is}`, () => {
      const asked = poller.ask(short, { resourceNames: names, versionInfo: version });
      const puts = known.map((name) => put(type(short), name, '1'));
      const resolved = [...lab.upstream.interests].filter(({ selector }) => known.includes(selector));
      lab.says({ type: type(short), holder: namedHolder, puts, resolved });
      expect(shown(asked)).to.equal('waits');
      lab.clock.advance(500);
      expect(shown(asked)).to.equal(is);
      expect(lab.events.filter((event) => event === 'rejected unknown')).to.have.length(is === 'a' ? 0 : 1);
    });
  }

  it('a poll that waits costs no digest of what it shows, however often that changes', () => {
    const name = 'contentVersion';
    const getter = Object.getOwnPropertyDescriptor(Cursor.prototype, name);
    let digests = 0;
    Object.defineProperty(Cursor.prototype, name, {
      configurable: true,
      get(): unknown {
        digests++;
        return getter?.get?.call(this);
      },
    });
    try {
      const asked = poller.ask('eds', { resourceNames: ['a', 'b'] });
      const before = digests;
      for (let at = 0; at < 10; at++) {
        lab.says({
          type: type('eds'),
          holder: namedHolder,
          puts: [put(type('eds'), 'a', String(at))],
          resolved: [],
        });
        lab.settle();
      }
      expect([shown(asked), digests]).to.deep.equal(['waits', before]);
      lab.clock.advance(500);
      expect(shown(asked)).to.equal('a');
      expect(digests).to.be.greaterThan(before);
    } finally {
      if (getter !== undefined) Object.defineProperty(Cursor.prototype, name, getter);
    }
  });

  it('§7.3 a new resource error does not hide behind the version of the resources', () => {
    poller.ask('eds', { resourceNames: ['a', 'b'] });
    const error = { name: resourceName('b'), constraints: UNCONSTRAINED, code: 7, message: 'not for you' };
    const status = encodeStatus(error.code, error.message);
    const b = [...lab.upstream.interests].filter(({ selector }) => selector === 'b');
    lab.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', '1')], resolved: b });
    const versionInfo = versionOf(poller.ask('eds', { resourceNames: ['a', 'b'] }));
    const same = { resourceNames: ['a', 'b'], versionInfo };
    expect(shown(poller.ask('eds', same))).to.equal('unchanged');
    lab.says({
      type: type('eds'),
      holder: namedHolder,
      resourceErrors: [{ ...error, status }],
      resolved: [],
    });
    const told = poller.ask('eds', same);
    expect(
      messageOf(told.outcome).resourceErrors.map(({ errorDetail }) => errorDetail?.message),
    ).to.deep.equal(['not for you']);
    expect(shown(poller.ask('eds', { ...same, versionInfo: versionOf(told) }))).to.equal('unchanged');
  });

  it('§8.1 no TTL is told over REST: a poll that is answered with "unchanged" could not prolong it', () => {
    const asking = { node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])) };
    poller.ask('eds', { ...asking, resourceNames: ['a'] });
    const says = (): void =>
      lab.says({
        type: type('eds'),
        holder: namedHolder,
        puts: [put(type('eds'), 'a', '1', { ttlMilliseconds: 10_000 })],
      });
    says();
    const first = poller.ask('eds', { ...asking, resourceNames: ['a'] });
    expect(shown(first), 'not wrapped').to.equal('a');
    expect(messageOf(first.outcome).resources.map(({ typeUrl }) => typeUrl)).to.deep.equal([type('eds')]);
    lab.clock.advance(5000);
    says();
    const again = { ...asking, resourceNames: ['a'], versionInfo: versionOf(first) };
    expect(shown(poller.ask('eds', again))).to.equal('unchanged');
    lab.clock.advance(10_000);
    lab.settle();
    expect(shown(poller.ask('eds', again)), 'it has expired').to.equal('');

    says();
    const fetched = poller.ask('eds', { ...asking, resourceNames: ['a'] }, 'fetch');
    expect(messageOf(fetched.outcome).resources[0]?.typeUrl).to.match(/Resource$/);
  });

  it('§7.5 a Fetch call gets what is known at its end, and always a response', () => {
    const empty = poller.ask('eds', { resourceNames: ['a'] }, 'fetch');
    lab.clock.advance(15_000);
    expect(shown(empty)).to.equal('');
    lab.full('cds', {});
    const wildcard = poller.ask('cds', {}, 'fetch');
    lab.says({ type: type('cds'), complete: true });
    expect(shown(poller.ask('cds', { versionInfo: versionOf(wildcard) }, 'fetch'))).to.equal('');
  });

  it('a class is one subscription upstream, however many poll, and ends three intervals after the last poll', () => {
    lab = new InMemoryRelay({ idleMilliseconds: 1 });
    poller = new Poller(lab);
    for (let count = 0; count < 1000; count++) poller.ask('cds', {});
    expect(lab.upstream.journal).to.deep.equal(['+cds *']);
    lab.full('cds', { shop: '1' });
    lab.clock.advance(40_000);
    expect(shown(poller.ask('cds', {}))).to.equal('shop');
    lab.clock.advance(119_000);
    expect(lab.upstream.journal).to.deep.equal(['+cds *']);
    lab.clock.advance(6000);
    expect(lab.upstream.journal).to.deep.equal(['+cds *', '-cds *']);
  });

  it('after a single poll it ends a minute later: how often the client polls is not known', () => {
    lab = new InMemoryRelay({ idleMilliseconds: 1 });
    new Poller(lab).ask('cds', {});
    lab.full('cds', { shop: '1' });
    lab.clock.advance(59_000);
    expect(lab.upstream.journal).to.deep.equal(['+cds *']);
    lab.clock.advance(6000);
    expect(lab.upstream.journal).to.deep.equal(['+cds *', '-cds *']);
  });

  const responsesTo = (names: readonly (readonly string[])[], from?: Peer): number => {
    const outcomes = names.map((resourceNames) =>
      poller.ask('cds', { resourceNames: [...resourceNames] }, 'rest', from),
    );
    return new Set(
      outcomes.map(({ outcome }) => (outcome?.kind === 'response' ? outcome.response : undefined)),
    ).size;
  };

  it('pollers of one class get one response, composed once', () => {
    poller.ask('cds', {});
    lab.full('cds', { shop: '1' });
    expect(responsesTo([[], [], []], testPeer())).to.equal(1);
  });

  it('what one connection alone polls is composed each time, and not kept', () => {
    poller.ask('cds', {});
    lab.full('cds', { shop: '1' });
    expect(responsesTo([[], []])).to.equal(2);
  });

  it('classes that differ by names that nobody has get one response', () => {
    poller.ask('cds', { resourceNames: ['*'] });
    lab.full('cds', { shop: '1', other: '1' });
    const classes = ['z1', 'z2', 'z3'].map((name) => ['*', name]);
    for (const resourceNames of classes) poller.ask('cds', { resourceNames });
    const resolved = [...lab.upstream.interests];
    lab.says({ type: type('cds'), holder: namedHolder, resolved });
    expect(responsesTo(classes)).to.equal(1);
    expect(responsesTo([...classes, ['*', 'shop']])).to.equal(2);
  });

  it('a poll that is given up is not answered', () => {
    const asked = poller.ask('cds', {});
    asked.giveUp();
    lab.full('cds', { shop: '1' });
    lab.clock.advance(1000);
    expect(shown(asked)).to.equal('waits');
  });

  it('§8.4 what nobody can answer is refused at once, and while it waits', () => {
    const waiting = poller.ask('cds', {});
    lab.upstream.down = true;
    lab.relay.changed();
    expect(shown(waiting)).to.equal(`refused ${Code.UNAVAILABLE}`);
    expect(shown(poller.ask('eds', { resourceNames: ['a'] }))).to.equal(`refused ${Code.UNAVAILABLE}`);
    expect(lab.events).to.include('rejected cold');
  });

  it('who changes what it polls too often is refused, and others are not', () => {
    lab = new InMemoryRelay();
    const accounts = testAccounts({ changesPerSecond: 10 }, lab.clock);
    poller = new Poller(lab, testPeer({}, accounts));
    const names = Array.from({ length: 12 }, (_, index) => `name-${index}`);
    const asked = names.map((name) => shown(poller.ask('eds', { resourceNames: [name] })));
    expect(asked.filter((one) => one === 'waits')).to.have.length(10);
    expect(asked.at(-1)).to.equal(`refused ${Code.RESOURCE_EXHAUSTED}`);
    const other = testPeer({ address: '127.0.0.2:1' }, accounts);
    expect(shown(poller.ask('eds', { resourceNames: ['name-11'] }, 'rest', other))).to.equal('waits');
    expect(shown(poller.ask('eds', { resourceNames: ['name-0'] }))).to.equal('waits');
    lab.clock.advance(1000);
    expect(shown(poller.ask('eds', { resourceNames: ['name-10'] }))).to.equal('waits');
  });

  it('whose polls alone are of a class pays for the response that it keeps', () => {
    const accounts = testAccounts({}, lab.clock);
    const peersAt = (address: string) => [testPeer({ address }, accounts), testPeer({ address }, accounts)];
    const [one, two] = [peersAt('127.0.0.1:1'), peersAt('127.0.0.2:1')];
    const heldBy = ([peer]: readonly Peer[]): number => Math.floor((peer?.account.held ?? 0) / 400_000);
    const poll = (name: string, peers: readonly Peer[]): void => {
      for (const peer of peers) poller.ask('cds', { resourceNames: ['*', name] }, 'rest', peer);
    };
    const answer = () =>
      lab.says({ type: type('cds'), holder: namedHolder, resolved: [...lab.upstream.interests] });
    poll('z1', one);
    lab.full('cds', { shop: 'x'.repeat(100_000) });
    answer();
    expect([heldBy(one), heldBy(two)]).to.deep.equal([1, 0]);
    poll('z2', two);
    answer();
    expect([heldBy(one), heldBy(two)], 'each class keeps it').to.deep.equal([1, 1]);
    for (let minute = 0; minute < 60; minute++) {
      lab.clock.advance(60_000);
      poll('z2', two);
    }
    expect([heldBy(one), heldBy(two)], 'the first has gone').to.deep.equal([0, 1]);
    poll('z2', one);
    expect([heldBy(one), heldBy(two)], 'the class is shared').to.deep.equal([0, 0]);
    lab.clock.advance(3_600_000);
    expect([one, two].map(([peer]) => peer?.account.held)).to.deep.equal([0, 0]);
  });

  it('of thousands of names that are opened in turns at the same time are of one class, and all are answered', () => {
    const resourceNames = Array.from({ length: 1000 }, (_, at) => `name-${at}`);
    const accounts = testAccounts({}, lab.clock);
    const peers = ['127.0.0.1:1', '127.0.0.2:1'].map((address) => testPeer({ address }, accounts));
    const begun = peers.map((peer) => {
      const asked: { outcome: PollOutcome | undefined } = { outcome: undefined };
      return { asked, turns: poller.inTurns(asked, 'eds', { resourceNames }, 'fetch', peer) };
    });
    while (begun.filter(({ turns }) => turns.next().done !== true).length > 0);
    const puts = resourceNames.map((name) => put(type('eds'), name, 'x'.repeat(1000)));
    lab.says({ type: type('eds'), holder: namedHolder, puts });
    expect(begun.map(({ asked }) => namesOf(asked.outcome).length)).to.deep.equal([1000, 1000]);
    expect(lab.upstream.journal.filter((line) => line.startsWith('+'))).to.have.length(1000);
    lab.clock.advance(3_600_000);
    expect(peers.map(({ account }) => account.held)).to.deep.equal([0, 0]);
  });

  it('of thousands of names for which its peer holds too much pays once for the change that is refused', () => {
    const accounts = testAccounts({ changesPerSecond: 4, heldPerPeer: 1 << 20 }, lab.clock);
    const peer = testPeer({}, accounts);
    peer.account.keeps(2 << 20);
    const resourceNames = Array.from({ length: 1000 }, (_, at) => `name-${at}`);
    const { outcome } = poller.ask('eds', { resourceNames }, 'fetch', peer);
    expect(outcome).to.include({ kind: 'refused', reason: 'held_bytes' });
  });

  it('changed rules end what was read by the old ones', () => {
    const asked = poller.ask('cds', {});
    const before = poller.last;
    lab.relay.polls.reidentify();
    expect(shown(asked)).to.equal(`refused ${Code.UNAVAILABLE}`);
    expect(lab.events).to.include('rejected rules');
    expect(before && lab.relay.polls.isCurrent(before)).to.equal(false);
  });

  for (const cohort of ['canary', 'released'] as const) {
    it(`some clients move, and a poll that waits is of cohort ${cohort} now: it is ${cohort === 'canary' ? 'answered' : 'to ask again'}`, () => {
      let access = ALLOW_ALL.ofCanaries;
      lab = new InMemoryRelay({ access: () => access });
      poller = new Poller(lab);
      const asked = poller.ask('cds', {});
      access = cohort === 'canary' ? access : ALLOW_ALL;
      lab.relay.polls.rereadRequests();
      expect(shown(asked)).to.equal('waits');
      lab.full('cds', { a: '1' });
      expect(shown(asked)).to.equal(cohort === 'canary' ? 'a' : `refused ${Code.UNAVAILABLE}`);
    });
  }

  it('changed rules end thousands of classes in slices, and a new poll is of a class of its own at once', async () => {
    lab = new InMemoryRelay({ idleMilliseconds: 1 });
    poller = new Poller(lab);
    const ask = (at: number): Asked => poller.ask('eds', { resourceNames: [`name-${at}`] });
    const all = Array.from({ length: 2000 }, (_, at) => ask(at));
    lab.relay.polls.reidentify();
    expect(new Set(all.map(shown))).to.deep.equal(new Set([`refused ${Code.UNAVAILABLE}`]));
    const ended = (): number => lab.upstream.journal.filter((line) => line.startsWith('-')).length;
    lab.clock.advance(1);
    expect(ended(), 'nothing in the same turn').to.equal(0);
    expect(shown(ask(7))).to.equal('waits');
    for (let turn = 0; turn < 10_000 && ended() < 1999; turn++) {
      await Promise.resolve();
      lab.clock.advance(1);
      lab.settle();
    }
    expect(ended()).to.equal(1999);
    lab.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'name-7', '1')] });
    expect(shown(ask(7))).to.equal('name-7');
  });

  it('a drain answers those that wait, and whoever comes', () => {
    const asked = poller.ask('cds', {});
    lab.relay.polls.drain();
    expect(shown(asked)).to.equal(`refused ${Code.UNAVAILABLE}`);
    expect(lab.events.filter((event) => event === 'rejected draining')).to.have.length(1);
    expect(lab.relay.polls.refusal(testPeer(), typeInfo(type('cds')))?.code).to.equal(Code.UNAVAILABLE);
  });

  it('what a response may not be as large as is refused', () => {
    lab = new InMemoryRelay({ limits: { maxResponseBytes: 50 } });
    poller = new Poller(lab);
    const asked = poller.ask('cds', {});
    lab.full('cds', { shop: '1'.repeat(100) });
    expect(shown(asked)).to.equal(`refused ${Code.RESOURCE_EXHAUSTED}`);
  });
});
