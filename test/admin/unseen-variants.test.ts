import type { JsonValue } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { compared, fieldDifferences } from '../../src/admin/changes.ts';
import { unseen } from '../../src/admin/inspection.ts';
import { resourceName, revision } from '../../src/model/brand.ts';
import { systemClock } from '../../src/model/clock.ts';
import type { Constraints } from '../../src/model/constraints.ts';
import type { HeldVariant } from '../../src/model/rollout.ts';
import { Pace } from '../../src/model/time-slices.ts';
import { type, when } from '../support/in-memory-relay.ts';

let reads = 0;

/** A variant of one name, which counts how often its name is read. */
function held(constraints: Constraints, alias: string): HeldVariant {
  const variant = {
    type: type('cds'),
    get name() {
      reads++;
      return resourceName('shop');
    },
    constraints,
    version: '1',
    deltaVersion: '1@1',
    payload: undefined,
    aliases: [alias],
    ttl: undefined,
    doNotCache: false,
    metadata: undefined,
    responseVersion: '1',
    upstream: 'central',
    cachedSince: 0,
    revision: revision(0),
  };
  return { variant, holders: [] };
}

describe('variants that wait, in an explanation', () => {
  it('are those whose name, constraints or content no variant has that is seen', () => {
    const [prod, test] = ['prod', 'test'].map((env) => when({ env }));
    if (prod === undefined || test === undefined) throw new Error('there are no constraints');
    const seen = [held(prod, 'old'), held(test, 'old')];
    const [same, changed, added] = [held(test, 'old'), held(prod, 'new'), held(when({ env: 'new' }), 'old')];
    expect(unseen([same, changed, added], seen)).to.deep.equal([changed, added]);
    expect(unseen(seen, [same, ...seen])).to.deep.equal([]);
  });

  it('twice as many variants make no more than three times the work', () => {
    const work = (count: number): number => {
      const make = (alias: string): readonly HeldVariant[] =>
        Array.from({ length: count }, (_, at) => held(when({ n: String(at) }), alias));
      const [before, after] = [make('old'), make('new')];
      reads = 0;
      expect(unseen(after, before)).to.have.length(count);
      return reads;
    };
    expect(work(400)).to.be.at.most(3 * work(200));
  });
});

describe('a comparison', () => {
  it('looks a few times at each variant, however many a name has', () => {
    let looks = 0;
    const side = (hash: string) =>
      Array.from({ length: 200 }, (_, at) => ({
        get constraints() {
          looks++;
          return `n == "${at}"`;
        },
        hash,
        body: undefined,
      }));
    const found = compared(side('old'), side('new'));
    expect(found.map(({ from, to }) => [from?.hash, to?.hash])).to.deep.equal(
      Array.from({ length: 200 }, () => ['old', 'new']),
    );
    expect(looks).to.be.below(4000);
  });

  it('looks a few times at each field of what was added, however deep it is', async () => {
    let looks = 0;
    const leaf = { text: 'x'.repeat(20_000) };
    Object.defineProperty(leaf, 'counted', { enumerable: true, get: () => ++looks });
    let added: JsonValue = leaf;
    for (let level = 0; level < 60; level++) added = { inner: added };
    const yaml = await fieldDifferences({}, added, new Pace(systemClock));
    expect(yaml).to.include(`${'inner.'.repeat(60)}counted`);
    expect(looks).to.be.below(10);
  });
});
