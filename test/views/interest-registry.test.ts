import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import type { Interest } from '../../src/model/transaction.ts';
import { InterestRegistry } from '../../src/views/interest-registry.ts';
import { type } from '../support/lab.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const interest = (selector: string, parameters: Parameters = NO_PARAMETERS): Interest => ({
  type: type('cds'),
  selector: resourceName(selector),
  parameters,
});

function setting() {
  const journal: string[] = [];
  const uses: string[] = [];
  const clock = new VirtualClock();
  const registry = new InterestRegistry(
    {
      want: ({ selector, parameters }) => journal.push(`+${selector}${parameters.key}`),
      again: () => undefined,
      idle: ({ selector }) => uses.push(`idle ${selector}`),
      live: ({ selector }) => uses.push(`live ${selector}`),
      unwant: ({ selector, parameters }) => journal.push(`-${selector}${parameters.key}`),
    },
    clock,
    1000,
  );
  return { journal, uses, clock, registry };
}

describe('interest registry', () => {
  it('wants once for each distinct (type, name, parameters), and until the last view has gone and lingered', () => {
    const { journal, clock, registry } = setting();
    const prod = internParameters([['env', 'prod']]);
    for (const one of [interest('a'), interest('a'), interest('a', prod)]) registry.acquire(one);
    expect(journal).to.deep.equal(['+a', '+a[["env","prod"]]']);
    registry.release(interest('a'));
    clock.advance(5000);
    expect(journal).to.have.length(2);
    registry.release(interest('a'));
    clock.advance(999);
    expect(journal).to.have.length(2);
    clock.advance(1);
    expect(journal.slice(2)).to.deep.equal(['-a']);
  });
  it('who comes back in time keeps it, and the wait starts anew', () => {
    const { journal, clock, registry } = setting();
    registry.acquire(interest('a'));
    registry.release(interest('a'));
    clock.advance(999);
    registry.acquire(interest('a'));
    clock.advance(5000);
    registry.release(interest('a'));
    clock.advance(999);
    expect(journal).to.deep.equal(['+a']);
  });
  it('says of what is wanted whether anybody subscribes to it', () => {
    const { uses, registry } = setting();
    for (let times = 0; times < 2; times++) registry.acquire(interest('a'));
    registry.release(interest('a'));
    expect(registry.isIdle(interest('a'))).to.equal(false);
    registry.release(interest('a'));
    expect(registry.isIdle(interest('a'))).to.equal(true);
    for (let times = 0; times < 2; times++) registry.acquire(interest('a'));
    expect(registry.isIdle(interest('a'))).to.equal(false);
    expect(uses).to.deep.equal(['idle a', 'live a']);
    expect(registry.isIdle(interest('b'))).to.equal(false);
  });
  it('what must not linger does not', () => {
    const { journal, registry } = setting();
    registry.acquire(interest('a'));
    registry.release(interest('a'), true);
    expect(journal).to.deep.equal(['+a', '-a']);
  });
  it('evicts the least recently used of what nobody has, and nothing else', () => {
    const { journal, registry } = setting();
    for (const name of ['a', 'b', 'c', 'd']) registry.acquire(interest(name));
    for (const name of ['b', 'a', 'd']) registry.release(interest(name));
    registry.acquire(interest('b'));
    registry.release(interest('b'));
    expect([registry.evict(), registry.evict(), registry.evict(), registry.evict()]).to.deep.equal([
      true,
      true,
      true,
      false,
    ]);
    expect(journal.slice(4)).to.deep.equal(['-a', '-d', '-b']);
    expect([...registry.all()].map(({ selector }) => selector)).to.deep.equal(['c']);
  });
  it('an evicted interest does not end a second time', () => {
    const { journal, clock, registry } = setting();
    registry.acquire(interest('a'));
    registry.release(interest('a'));
    registry.evict();
    registry.acquire(interest('a'));
    clock.advance(5000);
    expect(journal).to.deep.equal(['+a', '-a', '+a']);
  });
  it('a release too many is nothing', () => {
    const { journal, clock, registry } = setting();
    registry.release(interest('a'));
    clock.advance(5000);
    expect(journal).to.deep.equal([]);
  });
});
