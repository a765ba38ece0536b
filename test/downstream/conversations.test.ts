import { expect } from 'chai';
import { Conversation, Conversations, type Participant } from '../../src/downstream/send-order.ts';
import { systemClock } from '../../src/model/clock.ts';
import { boundlessAccounts } from '../../src/wire/accounts.ts';

describe('conversations with clients that have a stream for each type', () => {
  it('have a thousand streams at most, and the next one when a client has more', () => {
    const account = boundlessAccounts(systemClock).of({
      address: '10.0.0.1:1',
      unix: false,
      uriSans: [],
      dnsSans: [],
    });
    const all = new Conversations();
    const joined = Array.from({ length: 2500 }, () => {
      const participant: Participant = { types: [], resume: () => {} };
      return { participant, conversation: all.join(participant, account, 'n') };
    });
    expect(new Set(joined.map(({ conversation }) => conversation)).size, 'the rest are alone').to.equal(1501);
    for (const { conversation } of joined) expect(conversation.participants).to.be.at.most(1000);
    for (const { participant, conversation } of joined) conversation.remove(participant);
    for (const { conversation } of joined) expect(conversation.participants).to.equal(0);
    expect(all.join({ types: [], resume: () => {} }, account, 'n').participants).to.equal(1);
  });

  it('look at none of their streams but those that wait, when one hears something', () => {
    const conversation = new Conversation();
    let resumed = 0;
    const joined = Array.from({ length: 1000 }, (): Participant => ({ types: [], resume: () => resumed++ }));
    for (const participant of joined) conversation.add(participant);
    const [first, second, third] = joined;
    if (first === undefined || second === undefined || third === undefined) throw new Error('too few');
    for (const participant of joined) conversation.resumeOthers(participant);
    expect(resumed).to.equal(0);
    for (const participant of [first, second, third]) conversation.waits(participant, true);
    conversation.resumeOthers(first);
    expect(resumed).to.equal(2);
    conversation.waits(second, false);
    conversation.remove(third);
    conversation.resumeOthers(first);
    expect(resumed).to.equal(2);
  });
});
