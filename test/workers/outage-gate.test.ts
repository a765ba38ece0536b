import { expect } from 'chai';
import type { TypeUrl } from '../../src/model/brand.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { WILDCARD } from '../../src/model/transaction.ts';
import { CLAIMS_EVERYTHING } from '../../src/upstream/claims.ts';
import { OutageGate } from '../../src/workers/worker.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const lds = type('lds');

function start() {
  const clock = new VirtualClock();
  let looks = 0;
  const upstreams = [
    { name: 'files', claims: { ...CLAIMS_EVERYTHING, types: [cds] } },
    { name: 'central', claims: CLAIMS_EVERYTHING },
  ];
  const gate = new OutageGate(upstreams, clock, () => {
    looks++;
  });
  return { clock, gate, looks: () => looks };
}

describe('the outage gate of a worker (protocol §8)', () => {
  it('closes a second after the upstream that serves a name has gone', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    expect(gate.isUnavailable(lds, '*')).to.equal(false);
    clock.advance(1000);
    expect(gate.isUnavailable(lds, '*')).to.equal(true);
    expect(gate.isUnavailable(cds, '*'), 'served by another').to.equal(false);
  });

  it('stays open for a second for whatever is subscribed: the primary may have it', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.advance(5000);
    gate.subscribed(lds, 'late');
    expect([gate.isUnavailable(lds, 'late'), gate.isUnavailable(lds, 'early')]).to.deep.equal([false, true]);
    clock.advance(1000);
    expect(gate.isUnavailable(lds, 'late')).to.equal(true);
  });

  it('keeps nothing of what was subscribed longer ago, whichever upstream serves it', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    for (let second = 0; second < 10; second++) {
      for (let name = 0; name < 100; name++) gate.subscribed(cds, `${second}-${name}`);
      gate.subscribed(lds, `${second}`);
      clock.advance(1000);
    }
    expect(gate.waiting).to.be.at.most(101);
    expect(gate.isUnavailable(lds, '9')).to.equal(true);
  });

  it('opens again with the upstream', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.advance(5000);
    gate.update({ down: [], refused: new Map() });
    expect(gate.isUnavailable(lds, '*')).to.equal(false);
  });

  it('has everybody looked at again as long as something is down, and not longer', () => {
    const { clock, gate, looks } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.advance(2000);
    expect(looks()).to.equal(4);
    gate.update({ down: [], refused: new Map() });
    clock.advance(2000);
    expect(looks()).to.equal(4);
  });

  it('is closed to parameter sets that an upstream has no session for, and open again when it has', () => {
    const { gate } = start();
    const of = (env: string) => internParameters([['env', env]]);
    const central = { message: 'all sessions are in use', parameters: new Set([of('test').key]) };
    gate.update({ down: [], refused: new Map([['central', central]]) });
    const refusal = (url: TypeUrl, env: string) =>
      gate.refusal({ type: url, selector: WILDCARD, parameters: of(env) });
    expect(refusal(lds, 'test')).to.equal('all sessions are in use');
    expect(refusal(lds, 'prod')).to.equal(undefined);
    expect(refusal(cds, 'test'), 'served by another').to.equal(undefined);
    gate.update({ down: [], refused: new Map() });
    expect(refusal(lds, 'test')).to.equal(undefined);
  });
});
