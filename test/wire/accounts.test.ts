import { expect } from 'chai';
import { type Account, Accounts } from '../../src/wire/accounts.ts';
import { heapAfterCollection } from '../support/heap.ts';
import { testAccounts, testPeer } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

/** A loop whose turns end when told, and whose work takes as long as it says. */
class Loop {
  readonly clock = new VirtualClock();
  readonly #deferred: (() => void)[] = [];
  readonly accounts = testAccounts(
    { workPerSecond: 500, heldPerPeer: 1000, held: 1500, changesPerSecond: 10 },
    this.clock,
    (run) => this.#deferred.push(run),
  );

  account(address: string): Account {
    return testPeer({ address: `${address}:1` }, this.accounts).account;
  }

  work(account: Account, milliseconds: number): void {
    account.work(() => this.clock.advance(milliseconds));
  }

  endTurn(): void {
    for (const run of this.#deferred.splice(0)) run();
  }
}

describe('the account of a peer', () => {
  let loop: Loop;

  beforeEach(() => {
    loop = new Loop();
  });

  it('is one for all connections of an address or identity', () => {
    expect(loop.account('10.0.0.1')).to.equal(loop.account('10.0.0.1'));
    expect(loop.account('10.0.0.1')).not.to.equal(loop.account('10.0.0.2'));
  });

  it('has to wait when its turn is over, and others do not', () => {
    const [busy, calm] = [loop.account('10.0.0.1'), loop.account('10.0.0.2')];
    loop.work(calm, 1);
    loop.work(busy, 3);
    expect(busy.mustWait).to.equal(false);
    loop.work(busy, 1);
    expect([busy.mustWait, calm.mustWait]).to.deep.equal([true, false]);
    loop.endTurn();
    expect(busy.mustWait).to.equal(false);
  });

  it('gets what waits in order, a turn at a time', () => {
    const account = loop.account('10.0.0.1');
    loop.work(loop.account('10.0.0.2'), 1);
    const done: number[] = [];
    loop.work(account, 4);
    for (const id of [1, 2, 3, 4]) {
      account.wait(() => {
        done.push(id);
        loop.work(account, 2);
      });
    }
    expect([done, loop.accounts.waiting]).to.deep.equal([[], 1]);
    loop.endTurn();
    expect(done).to.deep.equal([1, 2]);
    expect(account.mustWait, 'others of it wait').to.equal(true);
    loop.endTurn();
    expect(done).to.deep.equal([1, 2, 3, 4]);
    expect([loop.accounts.waiting, account.mustWait]).to.deep.equal([1, true]);
    loop.clock.advance(1000);
    expect(loop.accounts.waiting).to.equal(0);
  });

  it('reads on from few connections in a turn, one for each millisecond that it may work', () => {
    const account = loop.account('10.0.0.1');
    loop.work(loop.account('10.0.0.2'), 1);
    loop.work(account, 4);
    const read: number[] = [];
    const waiting = [1, 2, 3, 4, 5, 6].map((id) => account.readLater(() => read.push(id)));
    expect(read).to.deep.equal([]);
    waiting[0]?.cancel();
    loop.endTurn();
    expect(read).to.deep.equal([2, 3, 4, 5]);
    expect(account.mustWait, 'what has come already does not wait for it').to.equal(false);
    loop.endTurn();
    expect(read).to.deep.equal([2, 3, 4, 5, 6]);
  });

  it('has longer turns while no other peer works', () => {
    const account = loop.account('10.0.0.1');
    loop.work(account, 19);
    expect(account.mustWait).to.equal(false);
    loop.work(account, 1);
    expect(account.mustWait).to.equal(true);
  });

  it('gets short turns past its rate, until it has made up for it', () => {
    const account = loop.account('10.0.0.1');
    loop.work(account, 1200);
    loop.endTurn();
    loop.work(loop.account('10.0.0.2'), 1);
    loop.work(account, 1);
    expect(account.mustWait).to.equal(true);
    loop.clock.advance(2400);
    loop.work(loop.account('10.0.0.2'), 1);
    loop.endTurn();
    loop.work(account, 1);
    expect(account.mustWait).to.equal(false);
  });

  it('does not wait for a hundred others: their turns end, and who has waited longest is next', () => {
    const accounts = Array.from({ length: 100 }, (_, index) => loop.account(`10.0.1.${index}`));
    const done = new Set<Account>();
    for (const account of accounts) {
      account.wait(() => {
        done.add(account);
        loop.work(account, 2);
      });
    }
    const started = loop.clock.monotonic();
    loop.endTurn();
    expect(loop.clock.monotonic() - started).to.equal(20);
    expect([...done]).to.deep.equal(accounts.slice(0, 10));
    loop.endTurn();
    expect([...done]).to.deep.equal(accounts.slice(0, 20));
  });

  it('waits when all together have worked for long, though it has not: it comes first then', () => {
    const calm = loop.account('10.0.0.1');
    const busy = [loop.account('10.0.1.1'), loop.account('10.0.1.2')];
    for (const account of busy) {
      expect(calm.mustWait).to.equal(false);
      loop.work(account, 15);
    }
    expect(calm.mustWait).to.equal(true);
    const done: Account[] = [];
    for (const account of [...busy, calm]) account.wait(() => done.push(account));
    loop.endTurn();
    expect(done).to.deep.equal([calm, ...busy]);
    expect(calm.mustWait).to.equal(false);
  });

  it('has as many new requests that wait as there are places left for others', () => {
    const waiting = (account: Account): number => {
      let count = 0;
      while (account.waitOnArrival(() => {}) !== undefined) count++;
      return count;
    };
    const first = loop.account('10.0.0.1');
    const more = first.waitOnArrival(() => {});
    expect(waiting(first)).to.equal(19_999);
    expect(waiting(loop.account('10.0.0.2'))).to.equal(10_000);
    expect(waiting(loop.account('10.0.0.3'))).to.equal(5000);
    more?.cancel();
    more?.cancel();
    expect(waiting(first)).to.equal(0);
    loop.endTurn();
    expect(waiting(first), 'nothing waits any more').to.equal(20_000);
  });

  it('measures work within work once', () => {
    const account = loop.account('10.0.0.1');
    loop.work(loop.account('10.0.0.2'), 1);
    account.work(() => loop.work(account, 2));
    expect(account.mustWait).to.equal(false);
  });

  it('holds so much and no more, and says whose bound it is', () => {
    const [first, second] = [loop.account('10.0.0.1'), loop.account('10.0.0.2')];
    expect(first.hold(1000)).to.equal(undefined);
    expect(first.hold(1)).to.match(/address 10.0.0.1 would hold 1001 bytes: at most 1000 .*per_peer/);
    expect(second.hold(501)).to.match(/1501 bytes would be held .*at most 1500 .*max_held_bytes\)/);
    first.hold(-1000);
    expect(second.hold(501)).to.equal(undefined);
    expect(loop.accounts.held).to.equal(501);
  });

  it('holds what it likes where it stands for many, and others have their bound beside it', () => {
    let isRelay = true;
    const clock = new VirtualClock();
    const bounds = { workPerSecond: 500, heldPerPeer: 1000, held: 1500, changesPerSecond: 10 };
    const accounts = new Accounts(
      clock,
      () => bounds,
      ({ address }) => isRelay && address === '10.0.0.1:1',
    );
    const [relay, other] = ['10.0.0.1:1', '10.0.0.2:1'].map(
      (address) => testPeer({ address }, accounts).account,
    );
    relay?.keeps(5000);
    expect(other?.hold(1000)).to.equal(undefined);
    expect(accounts.held).to.equal(6000);
    isRelay = false;
    accounts.reload();
    expect(relay?.excess).to.match(/6000 bytes|5000 bytes/);
    expect(other?.excess).to.match(/max_held_bytes/);
    isRelay = true;
    accounts.reload();
    expect([relay?.excess, other?.excess]).to.deep.equal([undefined, undefined]);
    relay?.keeps(-5000);
    expect(other?.hold(-1)).to.equal(undefined);
    expect(accounts.held).to.equal(999);
  });

  it('makes so many changes a second', () => {
    const account = loop.account('10.0.0.1');
    expect([account.change(10), account.change(1)]).to.deep.equal([true, false]);
    loop.clock.advance(100);
    expect(account.change(1)).to.equal(true);
  });

  it('ends when nothing is open and nothing has to be made up for', () => {
    const account = loop.account('10.0.0.1');
    account.enter('connections');
    loop.work(account, 20_000);
    account.leave('connections');
    loop.clock.advance(10_000);
    expect(loop.accounts.size).to.equal(1);
    loop.clock.advance(50_000);
    expect(loop.accounts.size).to.equal(0);
  });

  it('that was given up while a connection began is the one of that connection again', () => {
    const account = loop.account('10.0.0.1');
    loop.clock.advance(20_000);
    expect(loop.accounts.size).to.equal(0);
    expect(loop.accounts.again(account)).to.equal(account);
    expect(loop.account('10.0.0.1')).to.equal(account);
  });

  it('that was opened anew meanwhile is the new one', () => {
    const account = loop.account('10.0.0.1');
    loop.clock.advance(20_000);
    const opened = loop.account('10.0.0.1');
    expect(opened).not.to.equal(account);
    expect(loop.accounts.again(account)).to.equal(opened);
  });

  it('keeps the names of its peer, and not the connection that it began with', async () => {
    const begin = (): WeakRef<object> => {
      const connection = { address: '10.0.0.1:1', unix: false, uriSans: [], dnsSans: [] };
      loop.accounts.of(connection).enter('connections');
      return new WeakRef(connection);
    };
    const first = begin();
    await heapAfterCollection();
    expect(first.deref()).to.equal(undefined);
    expect(loop.accounts.size).to.equal(1);
  });

  it('lists the heaviest first', () => {
    for (const [address, milliseconds] of [
      ['10.0.0.1', 1],
      ['10.0.0.2', 30],
      ['10.0.0.3', 10],
    ] as const) {
      loop.work(loop.account(address), milliseconds);
    }
    expect(loop.accounts.heaviest(2).map(({ key }) => key)).to.deep.equal([
      'address 10.0.0.2',
      'address 10.0.0.3',
    ]);
  });
});
