import { expect } from 'chai';
import { cpuSeconds } from '../../support/cpu.ts';
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

  it('says of many names that they are missing as soon as ever, while as many were left', () => {
    const conversation = new Conversation('sotw', [], '', 1_000_000);
    const count = 20_000;
    for (let each = 0; each < count; each++) {
      conversation.say(`subscribe eds left-${each}`);
      conversation.say(`subscribe eds missing-${each}`);
    }
    conversation.say('connect');
    for (let each = 0; each < count; each++) conversation.say(`unsubscribe eds left-${each}`);
    const errors = Array.from({ length: count }, (_, each) => `!missing-${each}:NOT_FOUND`);
    const response = `< eds 1 a ${errors.join(' ')}`;
    const before = cpuSeconds();
    conversation.say(response);
    expect(cpuSeconds() - before).to.be.below(1);
  });
});
