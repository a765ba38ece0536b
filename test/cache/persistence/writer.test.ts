import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import type { Disk } from '../../../src/cache/persistence/disk.ts';
import type { Reply } from '../../../src/cache/persistence/disk-server.ts';
import type { DiskError, RowBatch } from '../../../src/cache/persistence/records.ts';
import { resourceName, type TypeUrl } from '../../../src/model/brand.ts';
import { fail, ok } from '../../../src/model/result.ts';
import { put, type } from '../../support/in-memory-relay.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';
import { Cache, interest, says } from './support.ts';

interface Written {
  readonly replace: boolean;
  readonly keys: string[];
  parts: number;
  readonly contents: string[];
}

/** A disk that does what the test wants. */
class FakeDisk implements Disk {
  readonly transactions: Written[] = [];
  readonly opened: (string | undefined)[] = [];
  /** What a commit answers. */
  error: DiskError | undefined;
  openError: DiskError | undefined;
  closed = false;
  #current: Written | undefined;
  #held: (() => void) | undefined;
  #holding = false;

  /** From now on the disk does not answer. */
  hold(): void {
    this.#holding = true;
  }

  release(): void {
    this.#holding = false;
    this.#held?.();
    this.#held = undefined;
  }

  open(_leaveOut: readonly TypeUrl[], discard?: string): Promise<Reply<'open'>> {
    this.opened.push(discard);
    if (this.openError !== undefined) return Promise.resolve(fail(this.openError));
    return Promise.resolve(ok({ state: undefined, setAside: undefined, unwritable: undefined }));
  }

  read(): Promise<Reply<'read'>> {
    return Promise.resolve(ok(undefined));
  }

  begin(replace: boolean): Promise<Reply<'begin'>> {
    this.#current = { replace, keys: [], parts: 0, contents: [] };
    return Promise.resolve(ok(undefined));
  }

  async put({ rows, payloads }: RowBatch): Promise<Reply<'put'>> {
    if (this.#current === undefined) throw new Error('no transaction');
    this.#current.parts++;
    for (const { kind, key, body } of rows)
      this.#current.keys.push(`${body === undefined ? '-' : ''}${kind} ${key}`);
    for (const { bytes } of payloads) this.#current.contents.push(Buffer.from(bytes).toString('latin1'));
    await this.#wait();
    return ok(undefined);
  }

  async commit(): Promise<Reply<'commit'>> {
    await this.#wait();
    if (this.error !== undefined) return fail(this.error);
    if (this.#current !== undefined) this.transactions.push(this.#current);
    return ok([]);
  }

  close(): Promise<Reply<'close'>> {
    this.closed = true;
    return Promise.resolve(ok(undefined));
  }

  abandon(): void {
    this.closed = true;
  }

  async #wait(): Promise<void> {
    if (!this.#holding) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#held = () => resolve(undefined);
    await promise;
  }
}

describe('what is written when', () => {
  let disk: FakeDisk;
  let clock: VirtualClock;
  let cache: Cache;
  const all = interest('cds');

  beforeEach(async () => {
    disk = new FakeDisk();
    clock = new VirtualClock();
    cache = await Cache.open({ directory: 'nowhere', disk, clock });
    cache.store.addInterest(all);
    await pass(200);
    disk.transactions.length = 0;
  });

  async function pass(milliseconds: number): Promise<void> {
    clock.advance(milliseconds);
    for (let index = 0; index < 20; index++) await turn();
  }

  it('a new file gets everything, a change what has changed', async () => {
    cache.store.apply(says('cds', { resources: { a: '1' }, resolved: [all] }));
    await pass(100);
    expect(disk.transactions).to.deep.include.members([
      {
        replace: false,
        keys: ['resource a', 'interest ["*",""]', 'version central wildcard'],
        parts: 1,
        contents: disk.transactions[0]?.contents,
      },
    ]);
    expect(cache.persistence.lagSeconds).to.equal(0);
    cache.store.apply(says('cds', { complete: true }));
    await pass(100);
    expect(disk.transactions[1]?.keys).to.deep.equal(['-resource a']);
  });

  it('revisions that come together are one transaction', async () => {
    for (const content of ['1', '2', '3']) cache.store.apply(says('cds', { resources: { a: content } }));
    await pass(100);
    expect(disk.transactions.length).to.equal(1);
    expect(disk.transactions[0]?.contents.length).to.equal(1);
  });

  it('while the disk is busy changes are merged, not queued: one transaction follows, with the latest', async () => {
    disk.hold();
    cache.store.apply(says('cds', { resources: { a: 'first' } }));
    await pass(100);
    for (let index = 0; index < 1000; index++) {
      cache.store.apply(says('cds', { resources: { a: `${index}`, b: `${index}` } }));
      await pass(1);
    }
    expect(cache.persistence.lagSeconds).to.be.closeTo(1.1, 0.2);
    disk.release();
    await pass(1);
    await pass(200);
    expect(disk.transactions.map(({ keys }) => keys)).to.deep.equal([
      ['resource a', 'version central wildcard'],
      ['resource a', 'resource b'],
    ]);
    expect(disk.transactions[1]?.contents.join()).to.contain('999');
    expect(disk.transactions[1]?.contents.length).to.equal(2);
  });

  it('what is written is of one moment, however many parts it has', async () => {
    const puts = Array.from({ length: 2000 }, (_, index) => put(type('cds'), `r${index}`, 'before'));
    disk.hold();
    cache.store.apply(says('cds', { puts }));
    await pass(100);
    cache.store.apply(says('cds', { puts: puts.map(({ name }) => put(type('cds'), name, 'after')) }));
    while (disk.transactions.length === 0) {
      disk.release();
      disk.hold();
      await turn();
    }
    const [first] = disk.transactions;
    expect(first?.parts).to.be.above(3);
    expect(first?.contents.every((content) => content.includes('before'))).to.equal(true);
  });

  it('a failure is said once, counted each time, and tried again later and later; then what waits is written', async () => {
    disk.error = { kind: 'full', message: 'no room' };
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await pass(100);
    expect(cache.failures).to.deep.equal(['full']);
    const times: number[] = [];
    const start = clock.now();
    for (let second = 0; second < 200; second++) {
      const before = cache.failures.length;
      await pass(1000);
      if (cache.failures.length > before) times.push(Math.round((clock.now() - start) / 1000));
    }
    expect(times).to.deep.equal([1, 3, 7, 15, 31, 63, 123, 183]);
    expect(cache.messages()).to.deep.equal(['the cache cannot be persisted; serving goes on']);
    expect(cache.persistence.lagSeconds).to.be.above(200);
    disk.error = undefined;
    await pass(60_000);
    expect(disk.transactions.map(({ keys }) => keys)).to.deep.equal([
      ['resource a', 'version central wildcard'],
    ]);
    expect(disk.transactions[0]?.contents.length).to.equal(1);
    expect(cache.messages('info')).to.deep.equal(['the cache is persisted again']);
    expect(cache.persistence.lagSeconds).to.equal(0);
    expect(disk.opened.length).to.equal(1);
  });

  it('after another failure than a full disk the file is opened again and written whole', async () => {
    disk.error = { kind: 'io', message: 'gone' };
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await pass(100);
    disk.error = undefined;
    await pass(1000);
    expect(disk.opened).to.deep.equal([undefined, undefined]);
    expect(disk.transactions.map(({ replace }) => replace)).to.deep.equal([true]);
    expect(disk.transactions[0]?.keys).to.have.members([
      'resource a',
      'interest ["*",""]',
      'version central wildcard',
    ]);
  });

  for (const [how, isTooMuch] of [
    ['what has changed meanwhile comes behind', false],
    ['all at once where that is too much to be listed', true],
  ] as const)
    it(`everything is read in parts, and ${how}, in one transaction`, async () => {
      const puts = Array.from({ length: 2000 }, (_, index) => put(type('cds'), `r${index}`, 'before'));
      cache.store.apply(says('cds', { puts }));
      await pass(100);
      disk.transactions.length = 0;
      disk.error = { kind: 'io', message: 'gone' };
      cache.store.apply(says('cds', { resources: { r0: 'between' } }));
      await pass(100);
      disk.error = undefined;
      disk.hold();
      await pass(1000);
      const names = ['r1', 'r1999'].map(resourceName);
      cache.store.apply(says('cds', { puts: names.map((name) => put(type('cds'), name, 'after')) }));
      if (isTooMuch) cache.persistence.journal.all();
      while (disk.transactions.length === 0) {
        disk.release();
        disk.hold();
        await turn();
      }
      const [{ replace, keys, contents } = { replace: false, keys: [], contents: [] }] = disk.transactions;
      expect(replace).to.equal(true);
      expect(new Set(keys.filter((key) => key.startsWith('resource')))).to.have.property('size', 2000);
      expect(keys.filter((key) => key === 'resource r1')).to.have.length(isTooMuch ? 1 : 2);
      expect(contents.filter((content) => content.includes('after'))).to.have.length(2);
      expect(cache.persistence.lagSeconds).to.equal(0);
    });

  it('what waits since everything could not be written has waited since then', async () => {
    disk.error = { kind: 'io', message: 'gone' };
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await pass(100);
    disk.hold();
    await pass(1000);
    await pass(10_000);
    cache.store.apply(says('cds', { resources: { a: '2' } }));
    while (cache.failures.length < 2) {
      disk.release();
      disk.hold();
      await turn();
    }
    expect(cache.persistence.lagSeconds).to.be.above(11);
    disk.error = undefined;
    disk.release();
    await pass(10_000);
    expect(disk.transactions.map(({ contents }) => contents.length)).to.deep.equal([1]);
    expect(disk.transactions[0]?.contents.join()).to.contain('2');
  });

  it('a file that proves damaged is set aside', async () => {
    disk.error = { kind: 'corrupt', message: 'malformed' };
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await pass(100);
    disk.error = undefined;
    await pass(1000);
    expect(disk.opened).to.deep.equal([undefined, 'malformed']);
  });

  it('a disk that does not answer is said to be slow, once', async () => {
    disk.hold();
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await pass(100);
    await pass(100_000);
    expect(cache.failures).to.deep.equal(['slow']);
    expect(cache.messages('warn')).to.deep.equal([
      'the disk of the persisted cache is slow; serving goes on',
    ]);
    disk.release();
    await pass(1);
    expect(cache.persistence.lagSeconds).to.equal(0);
  });

  it('who asks waits until what is marked by then is on disk, and no later change', async () => {
    const waits = (): (() => boolean) => {
      let settled = false;
      void (async () => {
        await cache.persistence.settled();
        settled = true;
      })();
      return () => settled;
    };
    const nothing = waits();
    await pass(0);
    expect(nothing(), 'nothing is marked').to.equal(true);
    disk.hold();
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    const first = waits();
    await pass(0);
    cache.store.apply(says('cds', { resources: { a: '2' } }));
    const [second, also] = [waits(), waits()];
    await pass(10_000);
    expect([first(), second(), also()]).to.deep.equal([false, false, false]);
    while (disk.transactions.length === 0) {
      disk.release();
      disk.hold();
      await turn();
    }
    await pass(0);
    expect([first(), second(), also()]).to.deep.equal([true, false, false]);
    cache.store.apply(says('cds', { resources: { a: '3' } }));
    disk.release();
    await pass(0);
    expect([second(), also()]).to.deep.equal([true, true]);
    expect(disk.transactions.map(({ contents }) => contents.length)).to.deep.equal([1, 1]);
  });

  it('who asks is not kept waiting by a disk that fails', async () => {
    disk.error = { kind: 'full', message: 'no room' };
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await cache.persistence.settled();
    expect(cache.persistence.failure?.reason).to.equal('full');
    await cache.persistence.settled();
    expect(cache.failures).to.deep.equal(['full']);
  });

  it('names of what was removed do not add up while nothing can be written', async () => {
    disk.error = { kind: 'full', message: 'no room' };
    for (let index = 0; index < 300_000; index++) {
      cache.persistence.journal.resource(type('cds'), resourceName(`r${index}`));
    }
    cache.store.apply(says('cds', { resources: { a: '1', b: '2' } }));
    disk.error = undefined;
    await pass(100);
    const last = disk.transactions.at(-1);
    expect(last?.replace).to.equal(true);
    expect(last?.keys).to.deep.equal([
      'resource a',
      'resource b',
      'interest ["*",""]',
      'version central wildcard',
    ]);
  });

  it('once a minute it is noted that the relay is alive', async () => {
    await pass(60_000);
    expect(disk.transactions.map(({ keys }) => keys)).to.deep.equal([[]]);
  });

  it('the end waits for what is to be written, and no longer than it is told', async () => {
    cache.store.apply(says('cds', { resources: { a: '1' } }));
    await cache.persistence.close(5000);
    expect(disk.transactions.length).to.equal(1);
    expect(disk.closed).to.equal(true);

    const stuck = new FakeDisk();
    const other = await Cache.open({ directory: 'nowhere', disk: stuck, clock });
    stuck.hold();
    other.store.addInterest(all);
    await pass(200);
    const ended = other.persistence.close(5000);
    await pass(5000);
    await ended;
    expect(stuck.closed).to.equal(true);
    expect(other.messages('warn')).to.deep.equal(['the last changes could not be persisted in time']);
  });
});
