import { expect } from 'chai';
import { pages } from './page.ts';
import { faultsIn, proseFaults } from './prose.ts';

describe('the prose of the documents', () => {
  it("has the field's words, and no sentence of more than 30 words", () => {
    expect(pages.flatMap(proseFaults)).to.deep.equal([]);
  });

  it('would be found fault with', () => {
    const long = `${'word '.repeat(31)}. Next`;
    const faults = faultsIn(
      'page',
      `# A title\n\nTwo are told apart by it.\n\n- Short.\n- ${long}\n\n| a crew | b |`,
    );
    expect(faults.map((fault) => fault.split(':')[1]?.trim())).to.deep.equal([
      '"told apart" (write',
      '31 words',
      '"crew" (write',
    ]);
  });

  it('may quote, in code and in what the glossary does not use', () => {
    expect(faultsIn('page', '`the crew` is a name.\n\n- **Worker**: a process. *Not*: crew.')).to.deep.equal(
      [],
    );
  });
});
