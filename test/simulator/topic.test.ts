import { expect } from 'chai';
import { type Constraints, NONE, parameterSets, partitions } from './constraints.ts';
import type { ReceivedResource } from './messages.ts';
import { Topic } from './topic.ts';
import { Violation } from './violation.ts';
import { World } from './world.ts';

const [none, prod] = parameterSets;
const PROD = partitions.flat().find(({ label }) => label === 'prod');

/** A delta client of a cluster for these parameter sets, and what each revision of it has there. */
function client(forms: typeof parameterSets, revisions: readonly Constraints[]) {
  const world = new World();
  for (const [index, constraints] of revisions.entries())
    world.commit([{ kind: 'cds', name: 'a', variants: [{ constraints, content: `${index + 1}` }] }]);
  const topic = new Topic({
    kind: 'cds',
    world,
    protocol: 'delta',
    constrained: true,
    loss: () => 'nothing',
    returnsKept: () => false,
    hasty: () => false,
    unanswered: () => false,
    locators: true,
  });
  topic.wanted = { names: new Set(), wildcard: true };
  const hex = ({ bytes }: Constraints): string => Buffer.from(bytes).toString('hex');
  const context = { wanted: topic.wanted, forms, known: revisions.length, base: 0, changed: [] };
  /** The content of this revision, in place of another variant maybe. */
  return (revision: number, gone?: Constraints) => {
    const constraints = hex(revisions[revision - 1] ?? NONE);
    const resource: ReceivedResource = { name: 'a', constraints, content: `${revision}`, tag: '' };
    const removedVariants = gone === undefined ? [] : [{ name: 'a', constraints: hex(gone) }];
    const nothingElse = { version: '', nonce: '', removed: [], errors: [] };
    topic.receive({ kind: 'cds', resources: [resource], removedVariants, ...nothingElse }, context, false);
  };
}

describe('rule 1: never older than before', () => {
  if (none === undefined || prod === undefined || PROD === undefined) throw new Error('they are there');
  const older = /which was so before revision 2 only/;

  it('what came for one of several parameter sets, and matches all, says nothing of what another one has', () => {
    const receive = client([none, prod], [PROD, NONE]);
    receive(2);
    receive(1);
    receive(2);
  });
  it('a variant by itself is never older, for whichever of them it was', () => {
    const receive = client([none, prod], [NONE, NONE]);
    receive(2);
    expect(() => receive(1)).to.throw(Violation, older);
  });
  it('where it replaced what one of them alone had, it was for that one', () => {
    const receive = client([none, prod], [PROD, NONE]);
    receive(1);
    receive(2, PROD);
    expect(() => receive(1)).to.throw(Violation, older);
  });
  it('with one parameter set, each variant was for that', () => {
    const receive = client([prod], [PROD, NONE]);
    receive(2);
    expect(() => receive(1, NONE)).to.throw(Violation, older);
  });
});
