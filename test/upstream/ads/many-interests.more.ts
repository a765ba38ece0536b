import { expect } from 'chai';
import { Conversation } from './transcript.ts';

describe('one response', () => {
  it('answers more interests in a name than a call takes arguments', () => {
    const conversation = new Conversation('delta', [], '');
    for (let each = 0; each < 130_000; each++) conversation.say(`subscribe cds shop env=${each}`);
    conversation.say('connect');
    const said = conversation.say('< cds 1 a shop:1@1');
    expect(said.some((line) => line.startsWith('='))).to.equal(true);
    conversation.say('< cds 2 b !shop:UNAVAILABLE');
    expect(conversation.say('< cds 3 c shop:2@2').some((line) => line.startsWith('='))).to.equal(true);
  });
});
