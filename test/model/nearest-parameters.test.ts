import { expect } from 'chai';
import { type Constraints, parseConstraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { nearestParameters } from '../../src/model/nearest-parameters.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { when } from '../support/in-memory-relay.ts';

/** Field 3 or 4 of DynamicParameterConstraints: any or all of these. */
const combined = (field: 2 | 3, parts: readonly Constraints[]): Constraints => {
  const list = Buffer.concat(
    parts.map(({ bytes }) => Buffer.concat([Buffer.from([0x0a, bytes.length]), bytes])),
  );
  return parsed(Buffer.concat([Buffer.from([field * 8 + 2, list.length]), list]));
};
const not = ({ bytes }: Constraints): Constraints =>
  parsed(Buffer.concat([Buffer.from([4 * 8 + 2, bytes.length]), bytes]));
const exists = (key: string): Constraints => {
  const single = Buffer.concat([Buffer.from([0x0a, key.length]), Buffer.from(key), Buffer.from([0x1a, 0])]);
  return parsed(Buffer.concat([Buffer.from([0x0a, single.length]), single]));
};

function parsed(bytes: Buffer): Constraints {
  const read = parseConstraints(bytes, 64);
  if (!read.ok) throw new Error(read.error);
  return read.value;
}

const near = (own: Record<string, string>, ...names: readonly (readonly Constraints[])[]) =>
  nearestParameters(names, internParameters(Object.entries(own)), 3).map(({ changes, names: count }) => [
    Object.fromEntries(changes),
    count,
  ]);

describe('the nearest parameters that have something', () => {
  const [prod, test] = [when({ env: 'prod' }), when({ env: 'test' })];

  it('are those that are spelled most alike, whatever others have', () => {
    expect(near({ env: 'prd' }, [test], [test], [prod, test], [prod])).to.deep.equal([
      [{ env: 'prod' }, 2],
      [{ env: 'test' }, 3],
    ]);
  });

  it('change as little as possible', () => {
    const both = when({ env: 'prd', version: '2' });
    expect(near({ env: 'prd', version: '1' }, [when({ env: 'prod', version: '2' })], [both])).to.deep.equal([
      [{ version: '2' }, 1],
      [{ env: 'prod', version: '2' }, 1],
    ]);
    expect(near({ env: 'prd' }, [combined(2, [when({ env: 'x', version: '1' }), prod])])).to.deep.equal([
      [{ env: 'prod' }, 1],
    ]);
    expect(near({}, [prod])).to.deep.equal([[{ env: 'prod' }, 1]]);
    expect(near({ canary: '1' }, [not(exists('canary'))])).to.deep.equal([[{ canary: undefined }, 1]]);
  });

  it('are not guessed: a value that is only forbidden or must only be there is not known', () => {
    expect(near({ env: 'prd' }, [not(when({ env: 'prd' }))], [exists('zone')])).to.be.empty;
    expect(near({ env: 'prd' }, [combined(3, [prod, test])]), 'nothing matches both').to.be.empty;
    expect(near({ env: 'prd' }, [UNCONSTRAINED]), 'it matches as it is').to.be.empty;
  });
});
