import { expect } from 'chai';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { transaction } from '../../src/model/transaction.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import {
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type as url,
  wildcardHolder,
} from '../support/in-memory-relay.ts';

const idleMilliseconds = 1000;

/** A relay that gates clusters and listeners, and whose clients are in the cohort that `cohorts` says, by their address. */
class Setting {
  readonly cohorts = new Map<string, Cohort>();
  readonly relay = new InMemoryRelay({
    access: ({ address }) => (this.cohorts.get(address) === 'canary' ? ALLOW_ALL.ofCanaries : ALLOW_ALL),
    idleMilliseconds,
  });

  constructor() {
    this.gate.gatedTypes(new Set([url('cds'), url('lds')]));
  }

  get gate() {
    return this.relay.relay.gate;
  }

  sotw(address: string, cohort: Cohort = 'released'): SotwClient {
    const client = this.relay.sotw();
    client.peer = { ...client.peer, address };
    this.cohorts.set(address, cohort);
    return client;
  }

  delta(address: string, cohort: Cohort = 'released') {
    const client = this.relay.delta();
    client.peer = { ...client.peer, address };
    this.cohorts.set(address, cohort);
    return client;
  }

  move(address: string, cohort: Cohort): void {
    this.cohorts.set(address, cohort);
    this.relay.relay.server.reidentify();
    this.relay.settle();
  }

  release(): void {
    this.gate.release();
    this.relay.settle();
  }
}

/** Who asks for two clusters by name, of which upstream has the first. `says`: what it says next. */
function asking(first: Parameters<Setting['delta']>, ...others: Parameters<Setting['delta']>[]) {
  const setting = new Setting();
  const client = setting.delta(...first);
  const clients = [client, ...others.map((other) => setting.delta(...other))];
  for (const one of clients) one.send('cds', { resourceNamesSubscribe: ['a', 'b'] });
  const says = (part: object): void =>
    setting.relay.says({ type: url('cds'), holder: namedHolder, ...part, resolved: [] });
  says({ puts: [put(url('cds'), 'a', '1')] });
  return { setting, client, clients, says };
}

describe('cohorts', () => {
  it('canaries get a change, the others get it with the release, over SotW', () => {
    const setting = new Setting();
    const [canary, other] = [setting.sotw('canary', 'canary'), setting.sotw('other')];
    for (const client of [canary, other]) client.send('cds');
    setting.relay.full('cds', { a: '1', b: '1' });
    for (const client of [canary, other]) client.ack('cds', client.one());
    setting.relay.full('cds', { a: '2' }, '2');
    expect(resources(canary.one())).to.deep.equal({ a: '2' });
    expect(other.received()).to.deep.equal([]);
    const late = setting.sotw('late');
    late.send('cds');
    const first = late.one();
    expect(resources(first)).to.deep.equal({ a: '1', b: '1' });
    expect(first.versionInfo).to.equal('1');
    setting.release();
    const released = other.one();
    expect(resources(released)).to.deep.equal({ a: '2' });
    expect(released.versionInfo).to.equal('2');
    expect(canary.received()).to.deep.equal([]);
  });
  it('and over delta: what was removed is removed with the release', () => {
    const setting = new Setting();
    const [canary, other] = [setting.delta('canary', 'canary'), setting.delta('other')];
    for (const client of [canary, other]) client.send('cds');
    setting.relay.full('cds', { a: '1', b: '1' });
    for (const client of [canary, other]) client.ack('cds', client.one());
    setting.relay.full('cds', { a: '2' }, '2');
    const sent = canary.one();
    expect([resources(sent), sent.removedResources]).to.deep.equal([{ a: '2' }, ['b']]);
    expect(other.received()).to.deep.equal([]);
    setting.release();
    const released = other.one();
    expect([resources(released), released.removedResources]).to.deep.equal([{ a: '2' }, ['b']]);
  });
  it('a new name comes to both cohorts at once', () => {
    const setting = new Setting();
    const [canary, other] = [setting.delta('canary', 'canary'), setting.delta('other')];
    for (const client of [canary, other]) client.send('cds');
    setting.relay.full('cds', { a: '1' });
    for (const client of [canary, other]) client.ack('cds', client.one());
    setting.relay.full('cds', { a: '2', b: '1' }, '2');
    expect(resources(canary.one())).to.deep.equal({ a: '2', b: '1' });
    expect(resources(other.one())).to.deep.equal({ b: '1' });
  });
  for (const protocol of ['sotw', 'delta'] as const) {
    it(`a client that moves gets what differs, over ${protocol}, and nothing where all is equal`, () => {
      const setting = new Setting();
      const client = protocol === 'sotw' ? setting.sotw('one') : setting.delta('one');
      client.send('cds');
      setting.relay.full('cds', { a: '1', b: '1' });
      client.send('cds', { responseNonce: client.received()[0]?.nonce ?? '' });
      client.send('lds');
      setting.relay.full('lds', { l: '1' });
      client.send('lds', { responseNonce: client.received()[0]?.nonce ?? '' });
      setting.move('one', 'canary');
      expect(client.received()).to.deep.equal([]);
      setting.move('one', 'released');
      setting.relay.full('cds', { a: '2', b: '1' }, '2');
      expect(client.received()).to.deep.equal([]);
      setting.move('one', 'canary');
      const [moved, ...more] = client.received();
      expect(more).to.deep.equal([]);
      expect(moved && resources(moved)).to.deep.equal(protocol === 'sotw' ? { a: '2', b: '1' } : { a: '2' });
      setting.move('one', 'released');
      const [back] = client.received();
      expect(back && resources(back)).to.deep.equal(protocol === 'sotw' ? { a: '1', b: '1' } : { a: '1' });
    });
  }
  for (const protocol of ['sotw', 'delta'] as const) {
    it(`why a resource was removed is told with its removal, to each cohort once, over ${protocol}`, () => {
      const setting = new Setting();
      const open = (cohort: Cohort) =>
        protocol === 'sotw' ? setting.sotw(cohort, cohort) : setting.delta(cohort, cohort);
      const canary = open('canary');
      const other = open('released');
      const said = (client: typeof canary): string[] =>
        client.received().flatMap((response) => {
          client.send('cds', { responseNonce: response.nonce });
          return response.resourceErrors.map(({ resourceName: of }) => of?.name ?? '');
        });
      for (const client of [canary, other]) client.send('cds');
      setting.relay.full('cds', { a: '1', b: '1' });
      for (const client of [canary, other]) expect(said(client)).to.deep.equal([]);
      const denied = {
        name: resourceName('a'),
        constraints: UNCONSTRAINED,
        code: 7,
        message: 'denied',
        status: encodeStatus(7, 'denied'),
      };
      const cds = url('cds');
      setting.relay.says({ type: cds, puts: [put(cds, 'b', '1')], complete: true, resourceErrors: [denied] });
      expect([said(canary), said(other)]).to.deep.equal([['a'], []]);
      // This goes straight through: the client hears of something newer than the error.
      setting.relay.says({ type: cds, puts: [put(cds, 'c', '1')] });
      expect([said(canary), said(other)]).to.deep.equal([[], []]);
      setting.release();
      expect([said(canary), said(other)]).to.deep.equal([[], ['a']]);
    });
  }
  describe('an error that a client was told', () => {
    const eds = url('eds');
    const fault = (name: string, code: number) => ({
      name: resourceName(name),
      constraints: UNCONSTRAINED,
      code,
      message: 'why',
      status: encodeStatus(code, 'why'),
    });
    const told = (client: SotwClient | ReturnType<Setting['delta']>): string[] =>
      client
        .received()
        .flatMap(({ resourceErrors }) =>
          resourceErrors.map(({ resourceName: of, errorDetail }) => `${of?.name} ${errorDetail?.code}`),
        );
    for (const protocol of ['sotw', 'delta'] as const) {
      it(`§8.2 is not told again when it moves to the other cohort, over ${protocol}`, () => {
        const setting = new Setting();
        const client = protocol === 'sotw' ? setting.sotw('one') : setting.delta('one');
        const names = ['gone', 'refused'];
        client.send(
          'eds',
          protocol === 'sotw' ? { resourceNames: names } : { resourceNamesSubscribe: names },
        );
        const resourceErrors = [fault('gone', 5), fault('refused', 7)];
        setting.relay.says({ type: eds, holder: namedHolder, resourceErrors, resolved: [] });
        expect(told(client)).to.deep.equal(['gone 5', 'refused 7']);
        for (const cohort of ['canary', 'released'] as const) {
          setting.move('one', cohort);
          expect(told(client), cohort).to.deep.equal([]);
        }
        setting.relay.says({ type: eds, holder: namedHolder, resourceErrors: [fault('refused', 8)] });
        expect(told(client)).to.deep.equal(['refused 8']);
      });
    }
    it('§8.2 nor when it moves twice before it reads', () => {
      const setting = new Setting();
      const client = setting.delta('one');
      client.send('eds', { resourceNamesSubscribe: ['refused', 'other'] });
      const resourceErrors = [fault('refused', 7)];
      setting.relay.says({ type: eds, holder: namedHolder, resourceErrors, resolved: [] });
      expect(told(client)).to.deep.equal(['refused 7']);
      client.blocked = true;
      setting.relay.says({ type: eds, holder: namedHolder, puts: [put(eds, 'other', '1')], resolved: [] });
      setting.move('one', 'canary');
      client.send('eds', { resourceNamesSubscribe: ['more'] });
      client.unblock();
      expect(told(client)).to.deep.equal([]);
    });
    it('§8.2 is not told again after the release, nor when it is no canary any more', () => {
      const { setting, client, says } = asking(['one', 'canary']);
      says({ puts: [put(url('cds'), 'a', '2')] });
      says({ resourceErrors: [fault('a', 7)] });
      expect(told(client)).to.deep.equal(['a 7']);
      setting.release();
      says({ puts: [put(url('cds'), 'b', '1')] });
      client.send('cds', { resourceNamesSubscribe: ['c'] });
      expect(told(client)).to.deep.equal([]);
      setting.move('one', 'released');
      expect(told(client)).to.deep.equal([]);
    });
    it('§8.2 is none that waited while its name was frozen: that is told when the freeze ends', () => {
      const { setting, client, says } = asking(['one', 'canary']);
      setting.gate.freeze();
      says({ puts: [put(url('cds'), 'a', '2')] });
      says({ resourceErrors: [fault('a', 7)] });
      says({ puts: [put(url('cds'), 'b', '1')] });
      expect(told(client)).to.deep.equal([]);
      setting.gate.unfreeze();
      setting.relay.settle();
      expect(told(client)).to.deep.equal(['a 7']);
    });
    it('§8.2 is told to each cohort once, though something else of its name is queued at the release', () => {
      const { setting, clients, says } = asking(['canary', 'canary'], ['other']);
      says({ puts: [put(url('cds'), 'a', '2')] });
      says({ resourceErrors: [fault('a', 7)] });
      expect(clients.map(told)).to.deep.equal([['a 7'], []]);
      setting.gate.queueing(() => true);
      says({ puts: [put(url('cds'), 'a', '3')] });
      says({ puts: [put(url('cds'), 'b', '1')] });
      setting.release();
      expect(clients.map(told)).to.deep.equal([[], ['a 7']]);
      setting.gate.queueing(() => false);
      setting.gate.unqueue(() => true);
      setting.release();
      expect(clients.map(told)).to.deep.equal([[], []]);
    });
    it('§8.2 is told once, if upstream has gone back with it when the change before that is discarded', () => {
      const { setting, clients, says } = asking(['canary', 'canary'], ['other']);
      says({ puts: [put(url('cds'), 'a', '2')] });
      setting.gate.queueing(() => true);
      says({ puts: [put(url('cds'), 'a', '1')], resourceErrors: [fault('a', 7)] });
      expect(clients.map(told)).to.deep.equal([[], []]);
      setting.gate.discard();
      setting.relay.settle();
      expect(clients.map(told)).to.deep.equal([['a 7'], ['a 7']]);
      for (const client of clients) client.send('cds', { resourceNamesSubscribe: ['c'] });
      says({ puts: [put(url('cds'), 'b', '1')] });
      expect(clients.map(told)).to.deep.equal([[], []]);
    });
    it('§8.2 is one of many: what only the other cohort has is told', () => {
      const { setting, client, says } = asking(['one']);
      says({ puts: [put(url('cds'), 'a', '2')] });
      says({ resourceErrors: [fault('a', 7)] });
      says({ puts: [put(url('cds'), 'b', '1')] });
      expect(told(client)).to.deep.equal([]);
      setting.move('one', 'canary');
      expect(told(client)).to.deep.equal(['a 7']);
    });
  });
  it('canaries of a discarded change go back', () => {
    const setting = new Setting();
    const canary = setting.delta('canary', 'canary');
    canary.send('cds');
    setting.relay.full('cds', { a: '1' });
    canary.ack('cds', canary.one());
    setting.relay.full('cds', {}, '2');
    expect(canary.one().removedResources).to.deep.equal(['a']);
    setting.gate.discard();
    setting.relay.settle();
    expect(resources(canary.one())).to.deep.equal({ a: '1' });
  });
  it('what was discarded stays so when nobody subscribes to it for a while', () => {
    const setting = new Setting();
    const { relay } = setting;
    const first = setting.delta('first', 'canary');
    first.send('cds', { resourceNamesSubscribe: ['a'] });
    relay.full('cds', { a: '1' });
    first.ack('cds', first.one());
    relay.full('cds', { a: '2' }, '2');
    first.ack('cds', first.one());
    setting.gate.discard();
    relay.settle();
    first.ack('cds', first.one());
    const removals = [{ name: resourceName('a'), constraints: UNCONSTRAINED }];
    const drop = transaction({ holder: wildcardHolder, type: url('cds'), removals, unwanted: true });
    // As a session with a control plane does.
    relay.upstream.unsubscribed = () => relay.relay.apply(drop);
    first.disconnect();
    relay.clock.advance(2 * idleMilliseconds);
    expect([...relay.upstream.interests]).to.deep.equal([]);
    const second = setting.delta('second', 'canary');
    second.send('cds', { resourceNamesSubscribe: ['a'] });
    expect(resources(second.one())).to.deep.equal({ a: '1' });
    relay.full('cds', { a: '2' }, '2');
    expect(second.received()).to.deep.equal([]);
    expect([...setting.gate.pending].map(({ name, masked }) => [name, masked])).to.deep.equal([
      ['a', 'discarded'],
    ]);
  });
  it('what nobody subscribes to any more is no removal that waits', () => {
    const setting = new Setting();
    const { relay } = setting;
    const removals = [{ name: resourceName('a'), constraints: UNCONSTRAINED }];
    const drop = transaction({ holder: wildcardHolder, type: url('cds'), removals, unwanted: true });
    relay.upstream.unsubscribed = () => relay.relay.apply(drop);
    const client = setting.delta('client');
    client.send('cds', { resourceNamesSubscribe: ['a'] });
    relay.full('cds', { a: '1' });
    client.disconnect();
    relay.clock.advance(2 * idleMilliseconds);
    expect([...setting.gate.pending]).to.deep.equal([]);
    expect(relay.evicted).to.deep.equal(['idle 1']);
  });
  describe('the end of a wildcard that nobody has, where another client names what it showed,', () => {
    /** `before`: what happens before it ends. */
    function ended(before: (setting: Setting, says: (content: string) => void) => void) {
      const setting = new Setting();
      const { relay } = setting;
      const [all, one] = [setting.delta('all'), setting.delta('one')];
      all.send('cds');
      relay.full('cds', { a: '1' });
      one.send('cds', { resourceNamesSubscribe: ['a'] });
      const ofNames = { type: url('cds'), holder: namedHolder };
      const says = (content: string): void => {
        const resolved = [...relay.upstream.interests].filter(({ selector }) => selector === 'a');
        relay.says({ ...ofNames, puts: [put(url('cds'), 'a', content)], resolved });
      };
      says('1');
      before(setting, says);
      const removals = [{ name: resourceName('a'), constraints: UNCONSTRAINED }];
      const drop = transaction({ holder: wildcardHolder, type: url('cds'), removals, unwanted: true });
      relay.upstream.unsubscribed = () => relay.relay.apply(drop);
      all.disconnect();
      relay.clock.advance(2 * idleMilliseconds);
      expect(Array.from(relay.upstream.interests, ({ selector }) => selector)).to.deep.equal(['a']);
      return { setting, says };
    }

    it('is no change that waits', () => {
      const { setting } = ended(() => {});
      expect([...setting.gate.pending]).to.deep.equal([]);
    });

    it('keeps no name waiting whose change upstream takes back', () => {
      const { setting, says } = ended((_, say) => say('2'));
      says('1');
      expect([...setting.gate.pending]).to.deep.equal([]);
    });

    it('is no further change behind the one that is judged', () => {
      const { setting } = ended(({ gate }, say) => {
        say('2');
        gate.queueing(() => true);
      });
      const pending = setting.gate.pending.map(({ name, queued }) => ({ name, queued }));
      expect(pending).to.deep.equal([{ name: 'a', queued: false }]);
    });
  });
  it('what is frozen stays when nobody subscribes to it for a while', () => {
    const setting = new Setting();
    const { relay } = setting;
    const first = setting.delta('first');
    first.send('cds', { resourceNamesSubscribe: ['a'] });
    relay.full('cds', { a: '1' });
    setting.gate.freeze();
    first.disconnect();
    relay.clock.advance(2 * idleMilliseconds);
    const second = setting.delta('second');
    second.send('cds', { resourceNamesSubscribe: ['a'] });
    expect(resources(second.one())).to.deep.equal({ a: '1' });
    relay.full('cds', { a: '2' }, '2');
    expect(second.received()).to.deep.equal([]);
  });
  it('clients of one cohort and class share one view', () => {
    const setting = new Setting();
    for (const [index, cohort] of (['canary', 'canary', 'released', 'released'] as const).entries())
      setting.sotw(`client ${index}`, cohort).send('cds', { node: { ...node(), id: `node ${index}` } });
    expect([...setting.relay.relay.views.all()].length).to.equal(2);
  });
  it('types come in the order of ADS with a release: clusters before listeners', () => {
    const setting = new Setting();
    const other = setting.sotw('other');
    for (const short of ['lds', 'cds']) other.send(short);
    setting.relay.full('lds', { l: '1' });
    setting.relay.full('cds', { a: '1' });
    for (const response of other.received())
      other.send(response.typeUrl, { responseNonce: response.nonce, versionInfo: response.versionInfo });
    setting.relay.full('lds', { l: '2' }, '2');
    setting.relay.full('cds', { a: '2' }, '2');
    expect(other.received()).to.deep.equal([]);
    setting.release();
    expect(other.received().map(({ typeUrl }) => typeUrl)).to.deep.equal([url('cds'), url('lds')]);
  });
});
