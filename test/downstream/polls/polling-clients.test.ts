import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { subscriptionsOf } from '../../../src/admin/local-clients.ts';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import { DiscoveryRequestSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { atOnce } from '../../../src/model/time-slices.ts';
import { typeInfo } from '../../../src/model/types.ts';
import type { Peer } from '../../../src/wire/server-stream.ts';
import { InMemoryRelay, type } from '../../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../../support/peers.ts';

/** As over REST, in milliseconds. */
const longest = 500;

describe('clients that poll, as they are listed', () => {
  let lab: InMemoryRelay;

  beforeEach(() => {
    lab = new InMemoryRelay();
  });

  /** The version of the answer; empty: there was none. */
  function poll(
    id: string,
    request: MessageInitShape<typeof DiscoveryRequestSchema> = {},
    peer: Peer = testPeer(),
    short = 'cds',
  ): string {
    const { polls } = lab.relay;
    const message = create(DiscoveryRequestSchema, { node: create(NodeSchema, { id }), ...request });
    const bytes = Buffer.from(toBinary(DiscoveryRequestSchema, message));
    const read = atOnce(polls.read(typeInfo(type(short)), bytes, peer, 'rest'));
    if (!read.ok) throw new Error(read.error.status.message);
    let version = '';
    atOnce(
      polls.ask(read.value, peer, longest, (outcome) => {
        if (outcome.kind === 'refused') return;
        ({ version } = outcome);
        if (outcome.kind === 'response') polls.sent(read.value, outcome, outcome.response.bytes);
      }),
    );
    lab.settle();
    return version;
  }

  const listed = (): readonly string[] =>
    [...lab.relay.clients()].map(({ client, types }) => {
      const states = types.map(({ info, subscription }) => {
        const { state = 'none', version = '' } = subscription?.responses ?? {};
        return `${info.short} ${state} ${version === '' ? '-' : 'v'}`;
      });
      return [client?.nodeId, ...states].join(', ');
    });

  const publish = (content: string): void => lab.full('cds', { shop: content });

  /** A wildcard that nobody has asked for has no answer. */
  function answered(): void {
    poll('first');
    publish('1');
    lab.clock.advance(1_000_000);
  }

  it('the version of the next poll is its ACK, and error_detail its NACK of what it was answered with', () => {
    poll('a');
    expect(listed()).to.deep.equal(['a, cds NOT_SENT -']);
    publish('1');
    expect(listed()).to.deep.equal(['a, cds STALE v']);
    const one = poll('a');
    expect(listed()).to.deep.equal(['a, cds STALE v']);
    poll('a', { versionInfo: one });
    expect(listed()).to.deep.equal(['a, cds SYNCED v']);

    publish('2');
    const two = poll('a', { versionInfo: one });
    expect(listed()).to.deep.equal(['a, cds STALE v']);
    poll('a', { versionInfo: one, errorDetail: { code: 3, message: 'no such filter' } });
    expect(listed()).to.deep.equal(['a, cds ERROR v']);
    const [client] = lab.relay.clients();
    expect(client?.types[0]?.subscription?.responses.lastNack).to.include({
      message: 'no such filter',
      version: two,
    });
    // Envoy goes on with the old version, and does not say why once more.
    poll('a', { versionInfo: one });
    expect(listed()).to.deep.equal(['a, cds ERROR v']);
    poll('a', { versionInfo: two });
    expect(listed()).to.deep.equal(['a, cds SYNCED v']);
  });

  it('a rejection is dated by the wall clock', () => {
    answered();
    poll('a');
    lab.clock.step(1_000_000_000);
    poll('a', { errorDetail: { code: 3, message: 'no such filter' } });
    const rejections = [...lab.relay.clients()].map(
      ({ types: [one] }) => one?.subscription?.responses.lastNack,
    );
    expect(rejections.map((one) => one?.at)).to.deep.equal([lab.clock.now()]);
  });

  it('a client is listed until it has not polled for three of its own intervals', () => {
    answered();
    for (let at = 0; at < 4; at++) {
      if (at % 2 === 0) poll('slow');
      poll('fast');
      lab.clock.advance(20_000);
    }
    const names = () => listed().map((line) => line.split(',')[0]);
    expect(names()).to.have.members(['slow', 'fast']);
    // 60 s after its last poll.
    lab.clock.advance(40_000);
    expect(names()).to.deep.equal(['slow']);
    // 120 s after its last poll.
    lab.clock.advance(40_000);
    expect(names()).to.deep.equal([]);
    expect(lab.relay.polls.clients.size).to.equal(0);
  });

  it('polls at short intervals are listed for 15 s', () => {
    answered();
    for (let at = 0; at < 3; at++) {
      poll('hasty');
      lab.clock.advance(100);
    }
    lab.clock.advance(14_000);
    expect(listed()).to.have.length(1);
    lab.clock.advance(1000);
    expect(listed()).to.deep.equal([]);
  });

  it('one client is one line over its connections and the names that it polls apart', () => {
    const accounts = testAccounts({}, lab.clock);
    const on = (address: string): Peer => testPeer({ address }, accounts);
    poll('a', { resourceNames: ['one'] }, on('10.0.0.1:1'), 'eds');
    poll('a', { resourceNames: ['two'] }, on('10.0.0.1:2'), 'eds');
    poll('a', { resourceNames: ['one'] }, on('10.0.0.2:1'), 'eds');
    const [first, second, ...others] = lab.relay.clients();
    expect(others).to.deep.equal([]);
    expect([first?.transport.peer.address, first?.types[0]?.selection.size]).to.deep.equal(['10.0.0.1:2', 2]);
    expect([second?.transport.peer.address, second?.types[0]?.selection.size]).to.deep.equal([
      '10.0.0.2:1',
      1,
    ]);
    expect(first && lab.relay.client(first.id)).to.equal(first);
  });

  it('of an ordered type, a class of them counts as one subscription, however many poll', () => {
    poll('client-0');
    publish('1');
    for (let at = 0; at < 10; at++) poll(`client-${at}`);
    const stream = lab.sotw();
    stream.send('cds');
    expect(listed()).to.have.length(11);
    expect(subscriptionsOf(lab.relay)).to.deep.equal(new Map([[type('cds'), 2]]));
  });

  it('what is kept of it is charged to its peer, and given back', () => {
    answered();
    const accounts = testAccounts({ heldPerPeer: 16_000 }, lab.clock);
    const peer = testPeer({}, accounts);
    const before = peer.account.held;
    poll('a', {}, peer);
    expect(peer.account.held - before).to.be.greaterThan(1000);
    for (let at = 0; at < 20; at++) poll(`invented-${at}`, {}, peer);
    expect(peer.account.held).to.be.at.most(16_000);
    expect(listed().length).to.be.within(2, 4);
    lab.clock.advance(1_000_000);
    expect(peer.account.held).to.equal(0);
  });

  it('the nodes that somebody invents do not grow without end, and leave half of the places to others', () => {
    answered();
    const accounts = testAccounts({}, lab.clock);
    const [first, second, third] = ['10.0.0.1:1', '10.0.0.2:1', '10.0.0.3:1'].map((address) =>
      testPeer({ address }, accounts),
    );
    for (let at = 0; at < 10_100; at++) poll(`invented-${at}`, {}, first);
    expect(lab.relay.polls.clients.size).to.equal(10_000);
    poll('late', {}, first);
    expect(listed().at(-1), 'those that poll stay').to.match(/^invented-9999, /);
    for (let at = 0; at < 10_100; at++) poll(`other-${at}`, {}, second);
    expect(lab.relay.polls.clients.size).to.equal(20_000);
    poll('late', {}, third);
    expect(listed().at(-1)).to.match(/^other-9999, /);
    lab.clock.advance(11_000);
    poll('late', {}, second);
    expect(lab.relay.polls.clients.size).to.equal(20_000);
    expect(listed().at(-1), 'one of its own that has missed a poll goes').to.match(/^late, /);
    expect(listed().filter((one) => one.startsWith('invented-'))).to.have.length(10_000);
    poll('late', {}, third);
    expect(
      listed().filter((one) => one.startsWith('invented-')),
      'or any, for who has few',
    ).to.have.length(9999);
  });

  it('a poll that is refused because its peer changes too often is not listed, and nothing is kept of it', () => {
    const peer = testPeer({}, testAccounts({ changesPerSecond: 1 }, lab.clock));
    poll('a', { resourceNames: ['one'] }, peer, 'eds');
    const before = peer.account.held;
    poll('b', { resourceNames: ['two'] }, peer, 'eds');
    expect(listed()).to.deep.equal(['a, eds NOT_SENT -']);
    expect(peer.account.held).to.equal(before);
  });

  it('of a client as many lists of names are known as a stream may have subscriptions', () => {
    lab = new InMemoryRelay({ limits: { maxSubscriptions: 5 } });
    for (let at = 0; at < 10; at++) poll('a', { resourceNames: [`n${at}`] }, testPeer(), 'eds');
    const [client] = lab.relay.clients();
    expect(client?.types[0]?.selection.size).to.equal(5);
  });

  it('a client of 150,000 lists is listed, and found to be late', () => {
    lab = new InMemoryRelay({ limits: { maxSubscriptions: 1_000_000 } });
    poll('a', { resourceNames: ['n'] }, testPeer(), 'eds');
    const { clients } = lab.relay.polls;
    const [known] = clients.all();
    const [names] = known?.names.values() ?? [];
    if (known === undefined || names === undefined) throw new Error('it is not listed');
    for (let at = 0; at < 150_000; at++) known.names.set(String(at), names);
    expect(known.types[0]?.polledAt).to.equal(names.polledAt);
    expect(known.intervalMilliseconds).to.equal(0);
    lab.clock.advance(11_000);
    expect(known.isLate(lab.clock.monotonic())).to.equal(true);
  });
});
