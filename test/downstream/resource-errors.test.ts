import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type ResourceFault, WILDCARD } from '../../src/model/transaction.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import { DeltaClient, Lab, namedHolder, put, resources, type SotwClient, type } from '../support/lab.ts';

const eds = type('eds');

function fault(name: string, code = 14, message = 'overloaded'): ResourceFault {
  return {
    name: resourceName(name),
    constraints: UNCONSTRAINED,
    code,
    message,
    status: encodeStatus(code, message),
  };
}

function subscribed(lab: Lab, names: readonly string[]): SotwClient {
  const client = lab.sotw();
  client.send('eds', { resourceNames: [...names] });
  return client;
}

function fails(lab: Lab, ...faults: ResourceFault[]): void {
  lab.says({ type: eds, holder: namedHolder, faults, settled: [] });
}

const errors = (client: SotwClient): string[] =>
  client
    .received()
    .flatMap(({ resourceErrors }) => resourceErrors)
    .map(({ resourceName: of, errorDetail }) => `${of?.name} ${errorDetail?.code} ${errorDetail?.message}`);

describe('resource_errors (§8)', () => {
  it('§8 is forwarded as it came', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a']);
    fails(lab, fault('a'));
    expect(errors(client)).to.deep.equal(['a 14 overloaded']);
  });

  it('a name of which only an error is known is not counted as cached', () => {
    const lab = new Lab();
    subscribed(lab, ['a', 'b']);
    fails(lab, fault('a'));
    lab.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], settled: [] });
    const cached = [...lab.relay.store.tables()].map(([, { resources: names, variants }]) => [
      names,
      variants,
    ]);
    expect(cached).to.deep.equal([[1, 1]]);
  });

  it('§8 only to those who subscribe to it', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a']);
    fails(lab, fault('b'));
    expect(client.received()).to.deep.equal([]);
  });

  it('§8 once: not again with the next update', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a', 'b']);
    fails(lab, fault('a'));
    errors(client);
    lab.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], settled: [] });
    expect(errors(client)).to.deep.equal([]);
  });

  it('§8 once: not again when the subscription changes', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a']);
    fails(lab, fault('a'));
    const told = client.one();
    client.ack('eds', told, ['a', 'b']);
    expect(client.received()).to.deep.equal([]);
    lab.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], settled: [] });
    expect(errors(client)).to.deep.equal([]);
  });

  it('§8 again when upstream says it again', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a']);
    fails(lab, fault('a'));
    fails(lab, fault('a', 13, 'broken'));
    expect(errors(client)).to.deep.equal(['a 14 overloaded', 'a 13 broken']);
  });

  it('§8 not again when upstream repeats it, as one that sends its whole state does', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a', 'b']);
    fails(lab, fault('a'));
    client.one();
    lab.says({ type: eds, holder: namedHolder, faults: [fault('a')], settled: [], version: '2' });
    expect(client.received()).to.deep.equal([]);
    const puts = [put(eds, 'b', '1')];
    lab.says({ type: eds, holder: namedHolder, puts, faults: [fault('a')], settled: [], version: '3' });
    expect(client.one().resourceErrors).to.deep.equal([]);
  });

  it('§8 is replayed to new subscribers, and to one who asks anew', () => {
    const lab = new Lab();
    const first = subscribed(lab, ['a']);
    fails(lab, fault('a'));
    const told = first.one();
    expect(errors(subscribed(lab, ['a']))).to.deep.equal(['a 14 overloaded']);
    first.ack('eds', told, ['b']);
    first.ack('eds', told, ['a', 'b']);
    expect(errors(first)).to.deep.equal(['a 14 overloaded']);
  });

  it('§8 is cleared when the resource arrives', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a']);
    fails(lab, fault('a'));
    errors(client);
    lab.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')] });
    expect(resources(client.one())).to.deep.equal({ a: '1' });
    expect(errors(subscribed(lab, ['a']))).to.deep.equal([]);
  });

  for (const code of [5, 14]) {
    it(`§8 does not drop what is cached, whatever it is (${code})`, () => {
      const lab = new Lab();
      const client = subscribed(lab, ['a']);
      lab.says({ type: eds, holder: namedHolder, puts: [put(eds, 'a', '1')] });
      client.one();
      fails(lab, fault('a', code));
      expect(client.one().resourceErrors).to.have.length(1);
      expect(resources(subscribed(lab, ['a']).one())).to.deep.equal({ a: '1' });
    });
  }

  it('§8 in a full-state response comes with the complete set', () => {
    const lab = new Lab();
    const client = lab.sotw();
    client.send('cds', { resourceNames: ['a', 'b'] });
    lab.says({ type: type('cds'), holder: namedHolder, puts: [put(type('cds'), 'a', '1')] });
    client.one();
    lab.says({ type: type('cds'), holder: namedHolder, faults: [fault('b')] });
    const response = client.one();
    expect(resources(response)).to.deep.equal({ a: '1' });
    expect(response.resourceErrors).to.have.length(1);
  });

  it('§8 a slow client is told the last one', () => {
    const lab = new Lab();
    const client = subscribed(lab, ['a', 'b']);
    client.blocked = true;
    lab.says({ type: eds, holder: namedHolder, puts: [put(eds, 'b', '1')], settled: [] });
    client.one();
    fails(lab, fault('a'));
    fails(lab, fault('a', 13, 'broken'));
    client.unblock();
    expect(errors(client)).to.deep.equal(['a 13 broken']);
  });

  for (const protocol of ['sotw', 'delta'] as const) {
    describe(`§8 of what a wildcard does not show (${protocol})`, () => {
      const cds = type('cds');
      const told = (client: SotwClient | DeltaClient): readonly (readonly string[])[] =>
        client
          .received()
          .map((response) => [
            ...Object.keys(resources(response)),
            ...response.resourceErrors.map(({ resourceName: of }) => `!${of?.name}`),
          ]);
      const open = (lab: Lab): SotwClient | DeltaClient => {
        const client = lab[protocol]();
        client.send('cds');
        return client;
      };
      const whole = protocol === 'sotw' ? ['a'] : [];

      it('is forwarded to those who have the wildcard, once, and replayed to new ones', () => {
        const lab = new Lab();
        const client = open(lab);
        lab.full('cds', { a: '1' });
        expect(told(client)).to.deep.equal([['a']]);
        lab.says({ type: cds, faults: [fault('b')] });
        expect(told(client)).to.deep.equal([[...whole, '!b']]);
        lab.says({ type: cds, faults: [fault('b')] });
        expect(told(client)).to.deep.equal([]);
        expect(told(open(lab))).to.deep.equal([['a', '!b']]);
      });

      it('comes with the first response', () => {
        const lab = new Lab();
        const client = open(lab);
        lab.says({ type: cds, puts: [put(cds, 'a', '1')], faults: [fault('b')], complete: true });
        expect(told(client)).to.deep.equal([['a', '!b']]);
      });

      it('is cleared when the resource arrives, also for whoever comes after it has gone', () => {
        const lab = new Lab();
        const client = open(lab);
        lab.full('cds', { a: '1' });
        lab.says({ type: cds, faults: [fault('b')] });
        client.received();
        lab.full('cds', { a: '1', b: '1' });
        expect(told(client)).to.deep.equal([[...whole, 'b']]);
        lab.full('cds', { a: '1' });
        expect(told(client)).to.deep.equal([whole]);
        expect(told(open(lab))).to.deep.equal([['a']]);
      });

      it('is not what was only said to a name', () => {
        const lab = new Lab();
        const [client, named] = [open(lab), lab[protocol]()];
        lab.full('cds', { a: '1' });
        client.received();
        if (named instanceof DeltaClient) named.send('cds', { resourceNamesSubscribe: ['b'] });
        else named.send('cds', { resourceNames: ['b'] });
        lab.says({ type: cds, holder: namedHolder, faults: [fault('b')], settled: [] });
        expect(told(named)).to.deep.equal([['!b']]);
        expect(told(client)).to.deep.equal([]);
        expect(told(open(lab))).to.deep.equal([['a']]);
      });
    });
  }

  it('a wildcard that no upstream is configured for is an error, too, and over when one is', () => {
    const lab = new Lab();
    lab.upstream.claimOnly(() => false);
    const client = lab.delta();
    client.send('cds');
    const refused = client.one();
    expect(refused.resourceErrors.map(({ resourceName: of }) => of?.name)).to.deep.equal(['*']);
    expect(refused.resources).to.deep.equal([]);
    const interest = { type: type('cds'), selector: WILDCARD, parameters: NO_PARAMETERS };
    lab.says({ type: type('cds'), puts: [put(type('cds'), 'a', '1')], settled: [interest] });
    expect(resources(client.one())).to.deep.equal({ a: '1' });
    const later = lab.delta();
    later.send('cds');
    expect(later.one().resourceErrors).to.deep.equal([]);
  });

  it('a name that no upstream is configured for is an error, not silence (§6)', () => {
    const lab = new Lab();
    lab.upstream.claimOnly(() => false);
    const client = subscribed(lab, ['a']);
    const [response] = client.received();
    expect(response?.resourceErrors[0]?.errorDetail?.code).to.equal(5);
    expect(response?.resourceErrors[0]?.errorDetail?.message).to.contain('no upstream');
  });
});
