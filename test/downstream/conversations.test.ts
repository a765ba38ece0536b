import { expect } from 'chai';
import { Conversations, type Participant } from '../../src/downstream/conversations.ts';
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
      const participant: Participant = { types: [], resumeWaiting: () => {} };
      return { participant, conversation: all.join(participant, account, 'n') };
    });
    expect(new Set(joined.map(({ conversation }) => conversation)).size).to.equal(3);
    for (const { conversation } of joined) expect(conversation.participants.size).to.be.at.most(1000);
    for (const { participant, conversation } of joined) all.leave(conversation, participant, account, 'n');
    for (const { conversation } of joined) expect(conversation.participants.size).to.equal(0);
    expect(all.join({ types: [], resumeWaiting: () => {} }, account, 'n').participants.size).to.equal(1);
  });
});
