import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import type { ResourceFault } from '../../src/model/transaction.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import { Lab, namedHolder, put, resources, type SotwClient, type } from '../support/lab.ts';

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

  it('a name that no upstream is configured for is an error, not silence (§6)', () => {
    const lab = new Lab();
    lab.upstream.claimOnly(() => false);
    const client = subscribed(lab, ['a']);
    const [response] = client.received();
    expect(response?.resourceErrors[0]?.errorDetail?.code).to.equal(5);
    expect(response?.resourceErrors[0]?.errorDetail?.message).to.contain('no upstream');
  });
});
