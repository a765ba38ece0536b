import { expect } from 'chai';
import { serial } from '../../src/model/brand.ts';
import { encoding } from '../../src/model/subscription.ts';
import {
  type EncodedResponse,
  fromNothing,
  KeptForOthers,
  SharedResponses,
} from '../../src/views/shared-responses.ts';

const plain = encoding({
  protocol: 'sotw',
  wrapped: false,
  ttl: false,
  constrained: false,
  contentVersions: false,
  unknownNames: false,
  absencesUnsaid: false,
});

function response(number: number): EncodedResponse {
  const [nonce, version, resources, receivedAt] = [String(number), 'v', 0, undefined];
  const header = { serial: serial(number), nonce, version, complete: true, resources, receivedAt };
  const sent = { header, additions: [], removals: [] };
  return { ...header, bytes: Buffer.from(nonce), changed: [], removed: [], sent };
}

describe('shared responses', () => {
  it('what one client alone gets is not shared because others share the complete state', () => {
    const shared = new SharedResponses();
    const whole = response(1);
    shared.addWhole(plain, whole);
    expect(shared.holds(response(2))).to.equal(false);
    // Each has its own record of what is new in it.
    expect(shared.holds({ ...whole })).to.equal(true);
  });

  it('what a client gets for what it has besides is shared once another one gets it too', () => {
    const shared = new SharedResponses();
    const own = response(1);
    const step = { ...fromNothing, encoding: plain, overlay: new Map() };
    shared.add(step, {
      response: own,
      overlay: undefined,
      isDeferring: false,
      untold: undefined,
      isOwn: false,
    });
    expect(shared.holds(own)).to.equal(false);
    expect(shared.find(step, 0)?.response).to.equal(own);
    expect(shared.holds(own)).to.equal(true);
  });

  it('of all views together have a bound: the oldest are dropped, the newest stays however large', () => {
    const kept = new KeptForOthers(() => 2);
    const whole = response(1);
    const [first, second, third, large] = [0, 1, 2, 3].map(() => new SharedResponses(kept));
    for (const shared of [first, second, third]) shared?.addWhole(plain, whole);
    const wholeOf = (shared: SharedResponses | undefined) => shared?.whole(plain, 0);
    expect([first, second, third].map(wholeOf)).to.deep.equal([undefined, whole, whole]);
    third?.clear();
    first?.addWhole(plain, whole);
    expect([first, second].map(wholeOf), 'there is room again').to.deep.equal([whole, whole]);
    large?.addWhole(plain, { ...whole, bytes: Buffer.alloc(10) });
    expect([first, second].map(wholeOf)).to.deep.equal([undefined, undefined]);
    expect(wholeOf(large)?.bytes).to.have.length(10);
  });
});
