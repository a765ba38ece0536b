import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import type { HeldVariant } from '../../src/model/rollout.ts';
import { Selection } from '../../src/model/selection.ts';
import { WaitingIndex } from '../../src/rollout-fleet.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { heapAfterCollection } from '../support/heap.ts';
import { InMemoryRelay, namedHolder, type } from '../support/in-memory-relay.ts';

const directory = 'xdstp://a/envoy.config.cluster.v3.Cluster';

const select = (names: readonly string[], parameters: Parameters = NO_PARAMETERS): Selection =>
  Selection.of(
    names.map((name) => ({
      selector: resourceName(name),
      requestedName: name,
      locator: parameters !== NO_PARAMETERS,
      parameters,
      locatorParameters: parameters === NO_PARAMETERS ? undefined : parameters,
    })),
  );

type Variants = (now: readonly HeldVariant[]) => readonly HeldVariant[];

const nothing: Variants = () => [];
const byNameAlone: Variants = (now) => now.map((one) => ({ ...one, holders: [namedHolder] }));

/** What came under these names waits for canaries. `before`: what the others have of it; `after`: what canaries have. */
function waiting(names: readonly string[], before = nothing, after: Variants = (now) => now): WaitingIndex {
  const lab = new InMemoryRelay();
  lab.full('cds', Object.fromEntries(names.map((name) => [name, '1'])));
  const relay: ConstructorParameters<typeof WaitingIndex>[0] = {
    variantsOf: (of, name, cohort) => {
      const now = lab.relay.variantsOf(of, name, 'released');
      return cohort === 'canary' ? after(now) : before(now);
    },
  };
  const index = new WaitingIndex(relay, type('cds'));
  index.begin(new Set(names.map((name) => resourceName(name))));
  while (index.step());
  return index;
}

describe('what clients subscribe to of what waits', () => {
  it('is found by name, by the glob over it and by the wildcard', () => {
    const name = `${directory}/x/one`;
    const index = waiting([name]);
    for (const selector of [name, `${directory}/x/*`, '*'])
      expect(index.shown(select([selector]), ALLOW_ALL), selector).to.have.length(1);
    for (const selector of [`${directory}/x/two`, `${directory}/*`])
      expect(index.shown(select([selector]), ALLOW_ALL), selector).to.be.empty;
  });

  it('is found where only wildcards are shown something else', () => {
    const index = waiting(['one'], byNameAlone);
    expect(index.shown(select(['*']), ALLOW_ALL)).to.have.length(1);
  });

  it('is not found by a wildcard where names alone have it', () => {
    const index = waiting(['one'], nothing, byNameAlone);
    expect(index.shown(select(['*']), ALLOW_ALL)).to.be.empty;
    expect(index.shown(select(['one']), ALLOW_ALL)).to.have.length(1);
  });

  it('is found where only the metadata is another', () => {
    const index = waiting(['one'], (now) =>
      now.map((one) => ({ ...one, variant: { ...one.variant, metadata: Buffer.from('before') } })),
    );
    expect(index.shown(select(['one']), ALLOW_ALL)).to.have.length(1);
  });

  for (const [what, selection] of [
    [
      'invented globs',
      (round: number) => select(Array.from({ length: 5000 }, (_, at) => `${directory}/${round}/${at}/*`)),
    ],
    [
      'invented parameters of a name',
      (round: number) =>
        Selection.of(
          Array.from({ length: 5000 }, (_, at) => internParameters([['env', `${round} ${at}`]])).flatMap(
            (parameters) => [...select([`${directory}/x/one`], parameters).entries.values()],
          ),
        ),
    ],
  ] as const)
    it(`${what} leave nothing when nobody subscribes to them any more`, async function () {
      this.timeout(30_000);
      const index = waiting([`${directory}/x/one`]);
      index.shown(selection(0), ALLOW_ALL);
      const before = await heapAfterCollection();
      for (let round = 1; round <= 10; round++) index.shown(selection(round), ALLOW_ALL);
      const grown = (await heapAfterCollection()) - before;
      expect(grown / 5e4, 'bytes of the heap for each').to.be.below(80);
    });
});
