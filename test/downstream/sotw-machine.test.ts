import { expect } from 'chai';
import { SotwConversation } from '../../src/downstream/sotw.ts';
import { resourceName } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { SelectionEntry } from '../../src/model/selection.ts';

const selected = (name: string): SelectionEntry => ({
  selector: resourceName(name),
  spelling: name,
  locator: false,
  parameters: NO_PARAMETERS,
  locatorParameters: undefined,
});
const everything = selected('*');

/** A conversation: `sent n` is a response; else a request's nonce (`-` for none), `!` with error_detail. */
const conversations: readonly (readonly [string, string])[] = [
  ['- first', 'before anything was sent (§3.2)'],
  ['leaked first', 'whatever nonce it carries (§3.2)'],
  ['leaked! first', 'even with an error_detail'],
  ['sent:1 1 ack 1 ack', 'the last nonce sent (§3.3)'],
  ['sent:1 0 stale', 'any other (§3.3)'],
  ['sent:1 - stale', 'no nonce, when a response is on its way'],
  ['sent:1 1! nack', 'error_detail present (§3.4)'],
  ['sent:1 0! stale', 'a stale nonce is no NACK'],
  ['sent:1 1 ack sent:2 1 stale 2 ack', 'an answer that a newer response has overtaken'],
  ['sent:1 1 ack sent:2 2! nack 1 change 1 change', 'the accepted one after a NACK (§3.3)'],
  ['sent:1 1 ack sent:2 2! nack 2! nack 1 change', 'after two of them'],
  ['sent:1 1 ack sent:2 2! nack 2 ack 1 stale', 'a change with the rejected nonce ends that'],
  ['sent:1 1 ack sent:2 2! nack sent:3 1 stale', 'and so does a new response'],
  ['sent:1 1! nack - change', 'nothing accepted yet: no nonce'],
  ['sent:1 1! nack 0 stale', 'nothing accepted yet, and another nonce'],
  ['sent:1 1 ack sent:2 2! nack - stale', 'no nonce, when one was accepted'],
];

describe('SotwMachine', () => {
  for (const [conversation, what] of conversations) {
    it(`${conversation}: ${what}`, () => {
      const machine = new SotwConversation();
      const words = conversation.split(' ');
      while (words.length > 0) {
        const word = words.shift() ?? '';
        if (word.startsWith('sent:')) {
          machine.sent(word.slice(5));
          continue;
        }
        const nonce = word.replace(/[-!]/g, '');
        expect(machine.classify(nonce, word.endsWith('!')), word).to.equal(words.shift());
      }
    });
  }

  const selections: readonly (readonly [readonly (readonly string[])[], readonly string[] | undefined])[] = [
    [[[]], ['*']],
    [[[], []], ['*']],
    [[['a']], ['a']],
    [[['a'], []], []],
    [[[], ['a'], []], []],
    [[['*'], []], []],
    [[['*', 'a'], ['a']], ['a']],
    [[['a'], [], ['*']], ['*']],
  ];
  for (const [requests, expected] of selections) {
    const said = requests.map((names) => `[${names.join(' ')}]`).join(' ');
    it(`§3.6 ${said} subscribes to [${expected?.join(' ')}]`, () => {
      const machine = new SotwConversation();
      const results = requests.map((names) => machine.selection(names.map(selected), everything));
      const last = [...(results.at(-1)?.entries.values() ?? [])];
      expect(last.map(({ spelling }) => spelling)).to.deep.equal(expected);
    });
  }

  it('§3.6 without a legacy wildcard nothing named is nothing', () => {
    expect(new SotwConversation().selection([], undefined).size).to.equal(0);
  });
});
