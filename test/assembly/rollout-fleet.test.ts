import { expect } from 'chai';
import { RelayFleet } from '../../src/assembly/rollout-fleet.ts';
import { resourceName } from '../../src/model/brand.ts';
import { nameKey } from '../../src/model/holds.ts';
import type { CanaryStream } from '../../src/rollout/waiting.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { InMemoryRelay, node, type as url } from '../support/in-memory-relay.ts';

describe('the clients as a rollout sees them', () => {
  it('canaries that subscribe to many names, and to equal ones, share the sets of these names', () => {
    const lab = new InMemoryRelay({ access: () => ALLOW_ALL.ofCanaries });
    lab.relay.gate.gatedTypes(new Set([url('cds'), url('lds')]));
    const names = Array.from({ length: 50 }, (_, at) => `c${at}`);
    for (let count = 0; count < 3; count++) {
      const client = lab.delta();
      for (const short of ['cds', 'lds']) client.send(short, { node: node(), resourceNamesSubscribe: names });
    }
    const contents = (content: string) => Object.fromEntries(names.map((name) => [name, content]));
    for (const content of ['1', '2']) for (const short of ['cds', 'lds']) lab.full(short, contents(content));
    const all = new Set(names.map(resourceName));
    const waiting = new Map(['cds', 'lds'].map((short) => [url(short), all]));
    const fleet = new RelayFleet(lab.relay, lab.clock, () => {});
    const { canaries } = fleet.survey(waiting);
    expect(canaries).to.have.length(3);
    const [first] = canaries;
    for (const { names: sets } of canaries) {
      expect(sets).to.have.length(2);
      for (const [at, set] of sets.entries()) expect(set).to.equal(first?.names[at]);
    }
    expect(first?.names[0]).to.deep.equal(
      new Set(names.map((name) => nameKey(url('cds'), resourceName(name)))),
    );
    fleet.stop();
  });

  it('one that ends before anybody has looked at what waits was a canary', () => {
    const waiting = new Map([[url('cds'), new Set([resourceName('a')])]]);
    const ended: (CanaryStream | undefined)[] = [];
    const lab = new InMemoryRelay({
      access: () => ALLOW_ALL.ofCanaries,
      closed: (stream) => void ended.push(fleet.canary(stream, waiting)),
    });
    const fleet = new RelayFleet(lab.relay, lab.clock, () => {});
    lab.relay.gate.gatedTypes(new Set([url('cds')]));
    const client = lab.delta();
    client.send('cds', { node: node(), resourceNamesSubscribe: ['a'] });
    for (const content of ['1', '2']) lab.full('cds', { a: content });
    client.disconnect();
    const names = [new Set([nameKey(url('cds'), resourceName('a'))])];
    expect(ended.map((canary) => canary?.names)).to.deep.equal([names]);
    fleet.stop();
  });
});
