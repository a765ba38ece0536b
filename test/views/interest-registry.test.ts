import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import type { Interest } from '../../src/model/transaction.ts';
import { InterestRegistry, lingering } from '../../src/views/interest-registry.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const interest = (selector: string, parameters: Parameters = NO_PARAMETERS): Interest => ({
  type: type('cds'),
  selector: resourceName(selector),
  parameters,
});

function setting({ idleMilliseconds = 1000, maxBytes = 2 ** 30 } = {}) {
  const journal: string[] = [];
  const uses: string[] = [];
  /** What there is, and the bytes of it. */
  const present = new Map<string, number>();
  const clock = new VirtualClock();
  const bounds = { maxBytes };
  const deferred: (() => void)[] = [];
  const registry = new InterestRegistry({
    interests: {
      subscribe: ({ selector, parameters }) => journal.push(`+${selector}${parameters.key}`),
      resubscribe: () => undefined,
      markIdle: ({ selector }) => uses.push(`idle ${selector}`),
      markActive: ({ selector }) => uses.push(`live ${selector}`),
      unsubscribe: ({ selector, parameters }, why) => {
        journal.push(`-${selector}${parameters.key}${why === 'idle' ? '' : ` ${why}`}`);
      },
      contentOf: ({ selector }) => ({ hasContent: present.has(selector), bytes: present.get(selector) ?? 0 }),
    },
    clock,
    idleMilliseconds,
    maxCacheBytes: () => bounds.maxBytes,
    defer: (run) => deferred.push(run),
  });
  return { journal, uses, present, clock, bounds, deferred, registry };
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
  it('begins in turns, and what is given up ends', () => {
    const { journal, clock, deferred, registry } = setting();
    const many = Array.from({ length: 5000 }, (_, index) => interest(`n${index}`));
    const turns = registry.acquireAll(many);
    turns.next();
    expect(journal.length).to.be.within(1, 2000);
    turns.return();
    for (const run of deferred.splice(0)) run();
    clock.advance(1000);
    expect(journal.filter((each) => each.startsWith('-')).length).to.equal(
      journal.filter((each) => each.startsWith('+')).length,
    );
    expect([...registry.all()]).to.deep.equal([]);
  });

  it('of many that are released, the rest is so in later turns', () => {
    const { uses, deferred, registry } = setting();
    const many = Array.from({ length: 5000 }, (_, index) => interest(`n${index}`));
    for (const each of many) registry.acquire(each);
    registry.releaseAll(lingering(many));
    expect(uses.length).to.be.within(1, 2000);
    registry.acquire(interest('n4999'));
    while (deferred.length > 0) deferred.shift()?.();
    expect(uses.length).to.equal(4999);
    expect(registry.isIdle(interest('n4999'))).to.equal(false);
  });

  it('what must not linger does not', () => {
    const { journal, registry } = setting();
    registry.acquire(interest('a'));
    registry.release(interest('a'), true);
    expect(journal).to.deep.equal(['+a', '-a uncached']);
  });
  it('evicts the least recently used of what nobody has, and nothing else', () => {
    const { journal, registry } = setting();
    for (const name of ['a', 'b', 'c', 'd']) registry.acquire(interest(name));
    for (const name of ['b', 'a', 'd']) registry.release(interest(name));
    registry.acquire(interest('b'));
    registry.release(interest('b'));
    const ended = Array.from({ length: 4 }, () => registry.evict() !== undefined);
    expect(ended).to.deep.equal([true, true, true, false]);
    expect(journal.slice(4)).to.deep.equal(['-a size', '-d size', '-b size']);
    expect([...registry.all()].map(({ selector }) => selector)).to.deep.equal(['c']);
  });
  describe('lingering', () => {
    const long = { idleMilliseconds: 600_000 };
    it('under whose name there is nothing ends when a client had the time to come back', () => {
      const { journal, clock, registry, present } = setting(long);
      present.set('there', 10);
      for (const name of ['there', 'invented']) registry.acquire(interest(name));
      for (const name of ['there', 'invented']) registry.release(interest(name));
      clock.advance(1999);
      expect(journal.slice(2)).to.deep.equal([]);
      clock.advance(1);
      expect(journal.slice(2)).to.deep.equal(['-invented']);
      clock.advance(600_000 - 2001);
      expect(journal.slice(2)).to.deep.equal(['-invented']);
      clock.advance(1);
      expect(journal.slice(2)).to.deep.equal(['-invented', '-there']);
    });
    it('what is asked for in advance does not end before it could come, but lingers so once only', () => {
      const { journal, uses, clock, registry, present } = setting(long);
      registry.prefetch(interest('offered'));
      expect(uses).to.deep.equal(['idle offered']);
      clock.advance(2000);
      present.set('offered', 10);
      clock.advance(600_000 - 2001);
      expect(journal).to.deep.equal(['+offered']);
      registry.acquire(interest('offered'));
      registry.release(interest('offered'));
      present.clear();
      clock.advance(2000);
      expect(journal).to.deep.equal(['+offered', '-offered']);
    });
    it('and ends after idle_ttl if it never came, also where that is shorter than a client takes', () => {
      for (const idleMilliseconds of [600_000, 1000]) {
        const { journal, clock, registry } = setting({ idleMilliseconds });
        registry.prefetch(interest('offered'));
        clock.advance(idleMilliseconds - 1);
        expect(journal).to.deep.equal(['+offered']);
        clock.advance(1);
        expect(journal).to.deep.equal(['+offered', '-offered']);
      }
    });
    it('who comes back in that time finds even that there is nothing', () => {
      const { journal, clock, registry } = setting(long);
      registry.acquire(interest('invented'));
      registry.release(interest('invented'));
      clock.advance(1000);
      registry.acquire(interest('invented'));
      clock.advance(600_000);
      expect(journal).to.deep.equal(['+invented']);
    });
    it('takes no more than max_bytes, names included, the least recently used first, also after a reload', () => {
      const { journal, clock, registry, present, bounds } = setting({ ...long, maxBytes: 10_000 });
      const leave = (...names: string[]): void => {
        for (const name of names) {
          present.set(name, 3000);
          registry.acquire(interest(name));
          registry.release(interest(name));
          clock.advance(2000);
        }
        journal.push('…');
      };
      leave('a', 'b');
      expect(registry.idleBytes).to.be.within(2 * 3000, 10_000);
      registry.acquire(interest('b'));
      expect(registry.idleBytes).to.be.within(3000, 5000);
      registry.release(interest('b'));
      leave('c');
      bounds.maxBytes = 30_000;
      leave('d', 'e');
      bounds.maxBytes = 10_000;
      leave('f');
      expect(journal.join(' ')).to.equal('+a +b … +c -a size … +d +e … +f -b size -c size -d size …');
    });
    it('what is larger than everything may be does not linger', () => {
      const { journal, clock, registry, present } = setting({ ...long, maxBytes: 5000 });
      present.set('huge', 10_000);
      registry.acquire(interest('huge'));
      registry.release(interest('huge'));
      clock.advance(2000);
      expect(journal).to.deep.equal(['+huge', '-huge size']);
    });
    it('a hundred thousand names end in many turns', () => {
      const { journal, clock, registry } = setting(long);
      for (let index = 0; index < 100_000; index++) registry.acquire(interest(`n${index}`));
      for (let index = 0; index < 100_000; index++) registry.release(interest(`n${index}`));
      let most = 0;
      clock.advance(1999);
      for (let last = journal.length; journal.length < 200_000; last = journal.length) {
        clock.turn();
        most = Math.max(most, journal.length - last);
      }
      expect(most).to.be.at.most(5000);
    });
    it('what is not kept current any more ends, if nobody subscribes to it', () => {
      const { journal, registry } = setting(long);
      for (const name of ['a', 'b']) registry.acquire(interest(name));
      registry.release(interest('a'));
      for (const name of ['a', 'b', 'c']) registry.endIfIdle(interest(name));
      expect(journal.slice(2)).to.deep.equal(['-a']);
    });
  });
  it('an evicted interest does not end a second time', () => {
    const { journal, clock, registry } = setting();
    registry.acquire(interest('a'));
    registry.release(interest('a'));
    registry.evict();
    registry.acquire(interest('a'));
    clock.advance(5000);
    expect(journal).to.deep.equal(['+a', '-a size', '+a']);
  });
  it('a release too many is nothing', () => {
    const { journal, clock, registry } = setting();
    registry.release(interest('a'));
    clock.advance(5000);
    expect(journal).to.deep.equal([]);
  });
});
