import { expect } from 'chai';
import { Causes } from './causes.ts';
import type { Received } from './messages.ts';
import { Violation } from './violation.ts';
import { World } from './world.ts';

/** Upstream says nothing: nothing excuses a repetition. */
function stream(isSotw: boolean, forms = 1): (...constraints: string[]) => void {
  const never = () => false;
  const causes = new Causes(new World(), 'sds', isSotw, forms, never, () => 0);
  return (...all) => {
    const resources = all.map((constraints) => ({ name: 't', constraints, content: '1', tag: '@1' }));
    const nothingElse = { version: '', nonce: '', removed: [], removedVariants: [], errors: [] };
    const received: Received = { kind: 'sds', resources, ...nothingElse };
    causes.partial(received, false, () => true);
  };
}

describe('rule 5: no response without cause', () => {
  it('over SotW a variant takes the place of the one before, so that going back to that is no repetition', () => {
    const sent = stream(true);
    sent('aa');
    sent('bb');
    sent('aa');
    expect(() => sent('aa')).to.throw(Violation, 't is sent again without cause');
  });

  it('over delta, and with several parameter sets, the one before is still there', () => {
    for (const sent of [stream(false), stream(true, 2)]) {
      sent('aa', 'bb');
      expect(() => sent('aa')).to.throw(Violation, 't is sent again without cause');
    }
  });
});
