import { expect } from 'chai';
import { resourceName, type TypeUrl } from '../../src/model/brand.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Interest, WILDCARD } from '../../src/model/transaction.ts';
import { CLAIMS_EVERYTHING } from '../../src/upstream/claims.ts';
import { OutageGate } from '../../src/workers/worker.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const eds = type('eds');
const lds = type('lds');

const of = (url: TypeUrl, name?: string, env?: string): Interest => ({
  type: url,
  selector: name === undefined ? WILDCARD : resourceName(name),
  parameters: env === undefined ? NO_PARAMETERS : internParameters([['env', env]]),
});

function start() {
  const clock = new VirtualClock();
  let looks = 0;
  const upstreams = [
    { name: 'files', claims: { ...CLAIMS_EVERYTHING, types: [cds] } },
    { name: 'regional', claims: { ...CLAIMS_EVERYTHING, types: [eds] }, siblings: {} },
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
    expect(gate.isUnavailable(of(lds))).to.equal(false);
    clock.advance(1000);
    expect(gate.isUnavailable(of(lds))).to.equal(true);
    expect(gate.isUnavailable(of(cds)), 'served by another').to.equal(false);
  });

  it('stays open for a second for whatever is subscribed: the primary may have it', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.advance(5000);
    gate.subscribed(of(lds, 'late'));
    expect([gate.isUnavailable(of(lds, 'late')), gate.isUnavailable(of(lds, 'early'))]).to.deep.equal([
      false,
      true,
    ]);
    clock.advance(1000);
    expect(gate.isUnavailable(of(lds, 'late'))).to.equal(true);
  });

  it('stays open for that alone: a wildcard with other parameters each moment holds up nobody else', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.advance(5000);
    for (let each = 0; each < 5; each++) {
      gate.subscribed(of(lds, undefined, `invented ${each}`));
      expect(gate.isUnavailable(of(lds, undefined, `invented ${each}`))).to.equal(false);
      expect(gate.isUnavailable(of(lds, undefined, 'prod'))).to.equal(true);
      clock.advance(900);
    }
  });

  it('stays open for as long as siblings have, where the primary asks them', () => {
    const { clock, gate } = start();
    gate.update({ down: ['regional'], refused: new Map() });
    clock.advance(5000);
    gate.subscribed(of(eds, 'late'));
    clock.advance(2900);
    expect([gate.isUnavailable(of(eds, 'late')), gate.isUnavailable(of(eds, 'early'))]).to.deep.equal([
      false,
      true,
    ]);
    clock.advance(100);
    expect(gate.isUnavailable(of(eds, 'late'))).to.equal(true);
  });

  it('stays open for as long as siblings have for what was subscribed before: the primary says late that it is down', () => {
    const { clock, gate } = start();
    gate.subscribed(of(eds, 'new'));
    clock.advance(200);
    gate.update({ down: ['regional'], refused: new Map() });
    clock.advance(2900);
    expect(gate.isUnavailable(of(eds, 'new'))).to.equal(false);
    clock.advance(100);
    expect(gate.isUnavailable(of(eds, 'new'))).to.equal(true);
  });

  it('does not go by the wall clock, which somebody may set back', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.step(-3_600_000);
    clock.advance(1000);
    expect(gate.isUnavailable(of(lds))).to.equal(true);
  });

  it('keeps nothing of what was subscribed longer ago, whichever upstream serves it', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    for (let second = 0; second < 10; second++) {
      for (let name = 0; name < 100; name++) gate.subscribed(of(cds, `${second}-${name}`));
      gate.subscribed(of(lds, `${second}`));
      clock.advance(1000);
    }
    expect(gate.waiting).to.be.at.most(101);
    expect(gate.isUnavailable(of(lds, '9'))).to.equal(true);
  });

  it('opens again with the upstream', () => {
    const { clock, gate } = start();
    gate.update({ down: ['central'], refused: new Map() });
    clock.advance(5000);
    gate.update({ down: [], refused: new Map() });
    expect(gate.isUnavailable(of(lds))).to.equal(false);
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
    const { key } = internParameters([['env', 'test']]);
    const central = { message: 'all sessions are in use', parameters: new Set([key]) };
    gate.update({ down: [], refused: new Map([['central', central]]) });
    const refusal = (url: TypeUrl, env: string) => gate.refusal(of(url, undefined, env));
    expect(refusal(lds, 'test')).to.equal('all sessions are in use');
    expect(refusal(lds, 'prod')).to.equal(undefined);
    expect(refusal(cds, 'test'), 'served by another').to.equal(undefined);
    gate.update({ down: [], refused: new Map() });
    expect(refusal(lds, 'test')).to.equal(undefined);
  });

  it('says when parameter sets are refused that were not: all streams are looked at for these alone', () => {
    const { gate } = start();
    const refused = (...envs: readonly string[]) => {
      const parameters = new Set(envs.map((env) => internParameters([['env', env]]).key));
      return { down: [], refused: new Map([['central', { message: 'full', parameters }]]) };
    };
    expect(gate.update(refused('a', 'b'))).to.equal(true);
    expect(gate.update(refused('b')), 'fewer').to.equal(false);
    expect(gate.update({ ...refused('b'), down: ['central'] }), 'the same').to.equal(false);
    expect(gate.update(refused('c'))).to.equal(true);
    expect(gate.update({ down: [], refused: new Map() })).to.equal(false);
  });
});
