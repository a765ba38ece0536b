import { expect } from 'chai';
import { resourceName } from '../../../src/model/brand.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import { type Interest, WILDCARD } from '../../../src/model/transaction.ts';
import { SessionPerParameters } from '../../../src/upstream/ads/ads-upstream.ts';
import { type } from '../../support/in-memory-relay.ts';

const interest = (env: string, selector: Interest['selector'] = WILDCARD): Interest => ({
  type: type('cds'),
  selector,
  parameters: internParameters([['env', env]]),
});
const [prod, test] = [interest('prod'), interest('test')];

describe('a session per parameter set', () => {
  it('is for exactly these parameters', () => {
    const sessions = new SessionPerParameters();
    sessions.join(prod, () => true);
    expect(sessions.of(prod)).to.equal(prod.parameters);
    expect(sessions.exactParameters(sessions.of(prod))).to.equal(prod.parameters);
  });

  it('past the limit parameter sets share one, which is for none of them exactly', () => {
    const sessions = new SessionPerParameters();
    for (const one of [prod, test]) sessions.join(one, () => false);
    expect(sessions.of(prod)).to.equal(sessions.of(test)).and.not.equal(prod.parameters);
    expect(sessions.exactParameters(sessions.of(prod))).to.equal(undefined);
  });

  it('a parameter set stays in the shared session until its last interest has left', () => {
    const sessions = new SessionPerParameters();
    const more = interest('prod', resourceName('a'));
    sessions.join(prod, () => false);
    const shared = sessions.of(prod);
    sessions.join(more, () => true);
    sessions.leave(prod);
    expect(sessions.of(more)).to.equal(shared);
    sessions.leave(more);
    expect(sessions.of(more)).to.equal(prod.parameters);
    sessions.leave(more);
    sessions.join(more, () => true);
    expect(sessions.of(more)).to.equal(prod.parameters);
  });
});
