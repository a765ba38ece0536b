import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { mutations as ofSimulator } from '../simulator/mutations.ts';
import { mutations as ofTenants } from '../tenants/mutations.ts';

const root = join(import.meta.dirname, '../..');

describe('mutations', () => {
  it('are made of lines that are in the code', () => {
    const lost = [...ofSimulator, ...ofTenants].filter(
      ({ file, right }) => !readFileSync(join(root, file), 'utf8').includes(right),
    );
    expect(lost.map(({ name, file }) => `${name}: ${file}`)).to.deep.equal([]);
  });
});
