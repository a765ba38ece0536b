import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { livePage, type Watcher } from '../../../src/admin/page/page.ts';
import type { PageModel } from '../../../src/admin/page/page-model.ts';
import type { Figure } from '../../../src/observe/figures.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';

class Page {
  readonly heard: string[] = [];
  reads = true;

  readonly send: Watcher = (message) => {
    if (this.reads) this.heard.push(message);
    return this.reads;
  };
}

function setUp(takes = 0) {
  const clock = new VirtualClock();
  let made = 0;
  let clients: number | string = 1;
  const points: Figure[] = [];
  const live = livePage(
    clock,
    () => {
      made++;
      const model = { clients } as unknown as PageModel;
      if (takes === 0) return Promise.resolve(model);
      return new Promise((resolve) => clock.after(takes, () => resolve(model)));
    },
    () => points,
    (error) => {
      throw error;
    },
  );
  /** Small steps: promises of the page settle between timers. */
  const pass = async (milliseconds: number) => {
    for (let left = milliseconds; left > 0; left -= 5) {
      clock.advance(5);
      await setImmediate();
    }
  };
  return { clock, live, pass, points, made: () => made, change: (to: number | string = 2) => (clients = to) };
}

describe('live page', () => {
  it('makes nothing while nobody watches, and one model for all who do', async () => {
    const { live, pass, made } = setUp();
    await pass(60_000);
    expect(made()).to.equal(0);
    const pages = [new Page(), new Page(), new Page()];
    for (const page of pages) live.watch(page.send);
    await pass(10_000);
    expect(made()).to.be.within(3, 6);
    for (const page of pages) live.leave(page.send);
    await pass(2500);
    const before = made();
    await pass(60_000);
    expect(made()).to.equal(before);
  });

  it('sends a model only when it has changed, and each point of the charts once', async () => {
    const { live, pass, change, points } = setUp();
    const page = new Page();
    live.watch(page.send);
    await pass(6000);
    const models = () => page.heard.filter((message) => message.includes('event: model'));
    expect(models()).to.deep.equal(['event: model\ndata: {"clients":1}\n\n']);
    points.push({ at: 1, updates: 0, acknowledged: null, streams: 0, memory: 0, busy: 0 });
    change();
    await pass(6000);
    expect(models()).to.have.length(2);
    expect(page.heard.filter((message) => message.includes('event: figures'))).to.have.length(1);
    expect(page.heard.at(-1)).to.equal(':\n\n');
  });

  it('a page that does not read gets the newest state when it does', async () => {
    const { live, pass, change } = setUp();
    const page = new Page();
    page.reads = false;
    live.watch(page.send);
    await pass(4000);
    change();
    await pass(4000);
    page.reads = true;
    await pass(4000);
    expect(page.heard[0]).to.equal('event: model\ndata: {"clients":2}\n\n');
  });

  it('a model that takes long is made less often: half a percent of the time', async () => {
    const { live, pass, made } = setUp(40);
    live.watch(new Page().send);
    await pass(40_000);
    expect(made()).to.be.within(3, 6);
  });

  it('shows no marks that turn the direction of text', async () => {
    const { live, change } = setUp();
    change('\u202Ergnp.exe\n');
    expect(await live.modelText()).to.equal('{"clients":"\\\\u{202e}rgnp.exe "}');
  });

  it('has an end: a hundred pages, and no more', () => {
    const { live } = setUp();
    for (let count = 0; count < 100; count++) expect(live.watch(new Page().send)).to.be.true;
    expect(live.watch(new Page().send)).to.be.false;
  });
});
