import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Page } from 'playwright-core';
import { z } from 'zod';
import { issueCertificate } from '../support/certificates.ts';
import { chromiumBinary, type OpenPage, TestBrowser, writesPictures } from './support/chromium.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { type Answer, send } from './support/http.ts';
import { LoadPlane, LoadReporter } from './support/load-plane.ts';
import { ModelPlane } from './support/model-plane.ts';
import { PageWorld, subscribe } from './support/page-world.ts';
import { PemFiles } from './support/pem-files.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { need } from './support/skip.ts';

const desktop = { viewport: { width: 1280, height: 1000 } };
const phone = { viewport: { width: 390, height: 844 } };

const text = (page: Page): Promise<string> => page.locator('body').innerText();

async function shows(page: Page, ...texts: readonly (string | RegExp)[]): Promise<void> {
  await eventually(async () => {
    const all = await text(page);
    for (const one of texts) {
      if (typeof one === 'string') expect(all).to.include(one);
      else expect(all).to.match(one);
    }
  });
}

function expectClean({ errors, foreign }: OpenPage): void {
  expect(errors, 'errors in the browser').to.be.empty;
  expect(foreign, 'requests that left the relay').to.be.empty;
}

const rejection = 'unknown key "checkout" in layer flags';

describe('status page in Chromium', function () {
  this.timeout(writesPictures ? 600_000 : 300_000);

  let browser: TestBrowser | undefined;
  let world: PageWorld | undefined;

  before(async function () {
    browser = await TestBrowser.start(await need(this, chromiumBinary()));
    world = await PageWorld.start();
    if (writesPictures) await world.changeFor(120_000);
  });

  after(async () => {
    await browser?.[Symbol.asyncDispose]();
    await world?.[Symbol.asyncDispose]();
  });

  const there = (): { readonly browser: TestBrowser; readonly world: PageWorld } => {
    if (browser === undefined || world === undefined) throw new Error('there is no browser');
    return { browser, world };
  };

  it('says which relay it is and that all is well, and draws who is served from where', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, 'relay-eu-1', 'ready', 'Serving 16 clients', /configuration\s+[0-9a-f]{12}/);
    await shows(page, 'central', 'files', 'env=prod', 'env=test', '9 up to date');
    await eventually(async () => expect(await page.locator('.plot canvas').count()).to.equal(5));
    await shows(page, /16 of 16/, 'Variants', 'Events');
    await page.getByRole('combobox', { name: 'Type of the variants' }).selectOption('cds');
    await eventually(async () => {
      const cells = await page
        .locator('.matrix tr', { hasText: 'recommendations' })
        .locator('.cell')
        .allInnerTexts();
      expect(cells).to.deep.equal(['A', 'A', 'A']);
      const differing = await page
        .locator('.matrix tr', { hasText: 'shop' })
        .locator('.cell')
        .allInnerTexts();
      expect(differing.slice(0, 2)).to.deep.equal(['A', 'B']);
    });
    await open.picture('page-well');
    expectClean(open);
  });

  it('shows a rejection as it happens, and leads to its clients, one of them, and the runbook', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, 'Serving 16 clients');
    for (const client of world.of('test').slice(0, 3)) {
      client.rejects = ({ type }) => (type === 'rtds' ? rejection : undefined);
    }
    world.change(2);
    await shows(page, '3 clients with env=test reject rtds flags', rejection, '3 rejecting');
    await eventually(async () => {
      const first = await page.locator('tbody tr', { hasText: 'test-' }).first().innerText();
      expect(first, 'who rejects comes first, at once').to.include(
        `rtds rejected: ${rejection}\ncds, eds, lds, rds acknowledged`,
      );
    });
    expect(await page.getByRole('status').first().textContent()).to.include(
      '3 clients with env=test reject rtds flags',
    );
    await open.picture('page-rejected');
    await page.locator('.problems').getByRole('link', { name: 'clients' }).first().click();
    await shows(page, '3 of 16', 'class env=test', 'rejected flags');
    expect(page.url()).to.include('state=ERROR').and.to.include('resource=flags');
    await page.reload();
    await shows(page, '3 of 16');
    await page.getByRole('link', { name: 'test-1', exact: true }).click();
    await shows(page, 'Client test-1', rejection);
    const row = page.locator('tr', { hasText: 'recommendations' }).first();
    await row.getByRole('button', { name: /explain/ }).click();
    await shows(page, 'It gets the variant');
    await open.picture('page-client');
    await page.goBack();
    await shows(page, '3 of 16');
    const answered = await page.request.get(`${world.url}runbooks/clients-reject`);
    expect(await answered.text()).to.match(/^# Clients reject/);
    expectClean(open);
  });

  it('a click on the tree shows the clients of a class', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, 'Serving 16 clients');
    await page
      .locator('.delta')
      .getByRole('link', { name: /^env=dev: 2 streams, class/ })
      .first()
      .focus();
    await page.keyboard.press('Enter');
    await shows(page, '2 of 16', 'dev-1', 'dev-2');
    expect(page.url()).to.match(/class=[0-9a-f]{16}/);
    expectClean(open);
  });

  it('a resource: its variants as JSON, who gets which, and who subscribes to it', async () => {
    const { browser, world } = there();
    await using open = await browser.open(`${world.url}?show=resource&type=cds&name=shop`, desktop);
    const { page } = open;
    await shows(page, '"alt_stat_name": "shop_prod"', 'env == "test" and not exists(version)');
    await shows(page, '16 clients subscribe to it', 'Who gets which variant');
    expect(await page.locator('.variant h3').allInnerTexts()).to.include.members([
      'A env == "prod" and not exists(version)',
      'B env == "test" and not exists(version)',
      'env == "test" and version == "v1"',
    ]);
    await open.picture('page-resource');
    expectClean(open);
  });

  it('what is typed, the focus and the scrolled position survive updates', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, 'Serving');
    const search = page.getByRole('searchbox', { name: /Search by node/ });
    await search.fill('prod-');
    await shows(page, '9 of 16');
    // A problem that comes above moves what is below, and not where the page is scrolled to.
    await page.evaluate("document.documentElement.style.overflowAnchor = 'none'");
    await page.evaluate('scrollTo(0, 500)');
    const sentence = await page.getByRole('status').first().textContent();
    using more = world.pool.open('delta', 'prod-more');
    subscribe(more);
    await eventually(async () => {
      expect(await page.getByRole('status').first().textContent()).not.to.equal(sentence);
    });
    const where = await page.evaluate('[scrollY, document.activeElement?.getAttribute("type")]');
    expect(where).to.deep.equal([500, 'search']);
    expect(await search.inputValue()).to.equal('prod-');
    expectClean(open);
  });

  it('an answer that takes longer than the interval is shown, and is not asked for again meanwhile', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, '16 of 16');
    let [asking, most] = [0, 0];
    await page.route(/GetClient$/, async (route) => {
      most = Math.max(most, ++asking);
      await sleep(6500);
      asking--;
      await route.continue();
    });
    await page.getByRole('link', { name: 'test-1', exact: true }).first().click();
    await shows(page, 'recommendations');
    expect(most, 'asked every 5 s').to.equal(1);
  });

  it('compares what is opened, says None of what it has compared, and shows no text of a peer as it came', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, '16 of 16');
    let compared = 0;
    page.on('request', (request) => void (compared += Number(request.url().endsWith('/Diff'))));
    const detail = z.looseObject({
      holdings: z.array(z.looseObject({ type: z.string() })),
      total: z.number(),
    });
    let pending = false;
    await page.route(/GetClient$/, async (route) => {
      const response = await route.fetch();
      const { holdings, total, ...more } = detail.parse(await response.json());
      const turned = { ...holdings[0], type: 'a\u202eb', name: 'c\u202ed', current: !pending };
      await route.fulfill({ json: { ...more, holdings: [...holdings, turned], total: total + 1000 } });
    });
    await page.getByRole('link', { name: 'test-1', exact: true }).first().click();
    await shows(page, 'None in the names above; the others are not compared.');
    pending = true;
    const differences = page.getByRole('region', { name: 'Differences' });
    await eventually(async () => expect(await differences.locator('summary').count()).to.equal(1));
    expect(compared, 'before one is opened').to.equal(0);
    await differences.locator('summary').click();
    await eventually(() => expect(compared).to.equal(1));
    expect(await page.evaluate('document.body.textContent')).to.not.include('\u202e');
    // What is asked every five seconds may be on its way when the page closes.
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  });

  it('a link from a client to the clients of its class leads there, and one to a client to its top', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, '16 of 16');
    const scrolled = async (): Promise<number> => z.number().parse(await page.evaluate('scrollY'));
    await page.getByRole('link', { name: 'test-1', exact: true }).first().click();
    await shows(page, 'Client test-1');
    expect(await scrolled()).to.equal(0);
    await page.locator('.facts').getByRole('link', { name: 'env=test' }).click();
    await shows(page, 'class env=test');
    expect(await scrolled()).to.be.above(0);
    expectClean(open);
  });

  it('a page too many says so, and asks again later instead of all the time', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, 'Serving');
    let asked = 0;
    await page.route(/\/events$/, async (route) => {
      asked++;
      const body = 'event: full\ndata: too many pages are open\n\n';
      await route.fulfill({ contentType: 'text/event-stream', body });
    });
    await page.clock.install();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await shows(page, 'This page is not kept up to date: too many pages are open.');
    expect(await text(page)).to.not.include('No answer since');
    await page.clock.runFor(10_000);
    expect(asked).to.equal(1);
    await page.unroute(/\/events$/);
    await page.clock.runFor(25_000);
    await eventually(async () => expect(await text(page)).to.not.include('not kept up to date'));
    expectClean(open);
  });

  it('what is typed and then left takes nobody back', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, '16 of 16');
    const search = page.getByRole('searchbox', { name: /Search by node/ });
    await page.clock.install();
    // The pause after what is typed is not over before the click, however slow the machine is.
    // The moment must still be to come when the page hears of it.
    const stopTime = async () => page.clock.pauseAt(await page.evaluate(() => Date.now() + 10_000));
    await stopTime();
    await search.fill('prod-');
    await page.getByRole('link', { name: 'test-1', exact: true }).first().click();
    await page.clock.runFor(1000);
    expect(page.url()).to.include('show=client').and.not.include('prod-');
    await page.clock.resume();
    await page.goto(world.url);
    await shows(page, '16 of 16');
    await stopTime();
    await search.fill('t');
    await page.getByRole('combobox', { name: 'State', exact: true }).first().selectOption('SYNCED');
    await page.clock.runFor(1000);
    expect(page.url()).to.include('q=t').and.include('state=SYNCED');
    expectClean(open);
  });

  it('a page that is paused or hidden asks for nothing', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    // A stream is an entry once it is over.
    const over = `performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/events')).length`;
    const ended = async (count: number): Promise<void> =>
      eventually(async () => {
        expect(await page.evaluate(over)).to.equal(count);
      });
    // What is given up before it has begun is no entry.
    const begun = page.waitForResponse(/\/events$/);
    await page.reload();
    await begun;
    await shows(page, 'Serving');
    await ended(0);
    await page.getByRole('button', { name: 'Pause' }).click();
    await shows(page, 'Resume');
    await ended(1);
    const resumed = page.waitForResponse(/\/events$/);
    await page.getByRole('button', { name: 'Resume' }).click();
    await resumed;
    await page.evaluate(`
      Object.defineProperty(document, 'visibilityState', { value: 'hidden' });
      document.dispatchEvent(new Event('visibilitychange'));
    `);
    await ended(2);
    expectClean(open);
  });

  it('is readable from 390 to 2,560 pixels, in light and dark, whatever clients call themselves', async () => {
    const { browser, world } = there();
    const names = ['<script>alert(1)</script>', `long-${'x'.repeat(10_000)}`, '\u202Ertl-עברית'];
    using _ = new DisposableStack();
    const hostile = names.map((name) => _.use(world.pool.open('delta', name)));
    for (const client of hostile) subscribe(client);
    for (const [width, scheme] of [
      [390, 'dark'],
      [768, 'light'],
      [2560, 'dark'],
    ] as const) {
      await using open = await browser.open(world.url, {
        viewport: { width, height: phone.viewport.height },
        colorScheme: scheme,
      });
      const { page } = open;
      await shows(page, 'Serving', '<script>alert(1)</script>');
      const wide = await page.evaluate('document.documentElement.scrollWidth');
      expect(wide, `at ${width} pixels`).to.be.at.most(width);
      if (width === 390) await open.picture('page-phone');
      expectClean(open);
    }
  });

  it('can be used by keyboard and by ear: landmarks, names, captions, scopes', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, desktop);
    const { page } = open;
    await shows(page, 'Serving', 'prod-1');
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement?.textContent')).to.equal('Skip to the content');
    const wrong = await page.evaluate(`
      const all = (selector) => [...document.querySelectorAll(selector)];
      [
        ...all('table').filter((table) => table.querySelector('caption') === null),
        ...all('th').filter((cell) => !cell.hasAttribute('scope')),
        ...all('input, select').filter((field) => field.closest('label')?.textContent.trim() === ''),
        ...all('button, a').filter((one) => (one.getAttribute('aria-label') ?? one.textContent).trim() === ''),
      ].map(({ outerHTML }) => outerHTML.slice(0, 200));
    `);
    expect(wrong).to.be.empty;
    for (const role of ['main', 'search'] as const) expect(await page.getByRole(role).count()).to.equal(1);
    expect(await page.getByRole('alert').count()).to.equal(1);
    expectClean(open);
  });

  it('says that an upstream is away, and that the relay itself does not answer', async () => {
    const { browser } = there();
    await using away = await PageWorld.start();
    await using open = await browser.open(away.url, { ...desktop, colorScheme: 'dark' });
    const { page } = open;
    await shows(page, 'Serving 16 clients');
    await away.plane[Symbol.asyncDispose]();
    await shows(page, /upstream central is unreachable \(for \d+ s\)/, 'Upstream central is unreachable');
    await open.picture('page-away');
    away.relay.signal('SIGKILL');
    await shows(page, /No answer since/);
  });

  it('a change goes through its waves: who is in which, and what checks said, as charts', async () => {
    const { browser } = there();
    const asked = { GOOD: 204, BAD: 500 };
    let says: keyof typeof asked = 'BAD';
    let value = 0.25;
    const server = createServer((request, response) => {
      request.resume();
      if (request.method === 'POST') {
        response.writeHead(asked[says]).end();
        return;
      }
      const result = { resultType: 'scalar', result: [0, String(value)] };
      response.end(JSON.stringify({ status: 'success', data: result }));
    });
    using ends = new DisposableStack();
    ends.defer(() => server.close());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = z.object({ port: z.number() }).parse(server.address());
    const url = `http://127.0.0.1:${address.port}`;
    const rollout = {
      waves: [{ match: [{ key: 'env', value: 'test' }] }, { percent: 100 }],
      ...{ bake: '1h', max_wait: '2h', types: ['rtds'] },
      checks: [
        { name: 'errors', interval: '500ms', prometheus: { url, query: 'up', max: 0.5 } },
        { name: 'smoke', interval: '500ms', failures: 60, webhook: { url } },
      ],
    };
    await using world = await PageWorld.start({ rollout });
    for (const options of [desktop, { ...phone, colorScheme: 'dark' as const }]) {
      await using open = await browser.open(world.url, options);
      const { page } = open;
      await shows(page, 'Serving 16 clients');
      world.change(options === desktop ? 2 : 3);
      await shows(
        page,
        /wave 1\s+5 of 5 clients accepted/,
        /wave 2\s+11 clients, bakes 1 h/,
        /everybody\s+0 clients/,
      );
      value = 0.375;
      says = 'GOOD';
      await eventually(async () => {
        const check = page.locator('.verdicts > li', { hasText: 'check errors' });
        expect(await check.locator('figcaption').innerText()).to.match(/value\s+max 0.5/);
        expect(await check.locator('.hidden').textContent()).to.match(
          /from 0.25 to 0.375, the last 0.375; max 0.5$/,
        );
        expect(await check.locator('canvas').count()).to.equal(1);
        const marks = page.getByRole('img', { name: /answers: \d+ BAD, \d+ GOOD/ });
        // Those of a change before, which this one replaces, may be there too.
        expect(await marks.innerText()).to.match(/✗+✓+$/);
      });
      [says, value] = ['BAD', 0.25];
      const wide = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect(wide, 'wider than the screen').to.be.at.most(0);

      await page.getByRole('button', { name: /^wave 1/ }).click();
      const members = page.getByRole('region', { name: 'Clients of the wave' });
      await eventually(async () => {
        const rows = await members.locator('tbody tr').allInnerTexts();
        expect(rows.map((row) => row.split(/\s+/).slice(1).join(' '))).to.deep.equal(
          Array(5).fill('env=test accepted'),
        );
      });
      await page.getByRole('button', { name: /^wave 2/ }).click();
      await eventually(async () => {
        expect(await members.innerText()).to.include('does not have it yet');
      });
      expectClean(open);
    }
  });

  it('a change that a canary rejects is held, with what an operator can type', async () => {
    const { browser } = there();
    const rollout = { canary: { percent: 10 }, bake: '500ms', types: ['rtds'] };
    await using held = await PageWorld.start({ rollout });
    if (writesPictures) await held.changeFor(60_000);
    await using open = await browser.open(held.url, desktop);
    const { page } = open;
    await shows(page, 'Serving 16 clients', '9 up to date');
    for (const client of held.clients) {
      client.rejects = ({ type }) => (type === 'rtds' ? rejection : undefined);
    }
    held.change(2);
    await shows(page, 'A change is held', 'distributary release --reason', rejection);
    const waves = await page.getByRole('list', { name: 'Waves' }).getByRole('listitem').allInnerTexts();
    expect(waves[0]).to.match(/^wave 1\s+0 of \d+ clients? accepted, \d+ rejected$/);
    expect(waves[1]).to.match(/^everybody\s+\d+ clients$/);
    await shows(page, 'it: 0 accepted, ');
    await open.picture('page-held');
    await held.relay.rpc('distributary.admin.v1.AdminService/Discard', { reason: 'test' });
    // The lines of the log still have it.
    await eventually(async () => {
      const problems = await page.locator('.problems').allInnerTexts();
      expect(problems.join()).not.to.include('A change is held');
    });
    expectClean(open);
  });

  it('at scale: one cause is one line with its classes, the worst first, and everything counted can be opened', async () => {
    const { browser } = there();
    await using plane = await ModelPlane.start();
    const names = Array.from({ length: 40 }, (_, index) => `c${index}`);
    const clusters = (bad: string) =>
      Object.fromEntries(names.map((name) => [name, name === 'c31' ? bad : '1']));
    plane.set('cds', clusters('1'));
    plane.set('rds', { web: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      parameters: [{ key: 'env', from: 'node.id', pattern: '^(e[0-9]+)-' }],
    });
    using pool = new ClientPool(relay.xds, 4);
    const clients = Array.from({ length: 400 }, (_, index) => {
      const client = pool.open('delta', `e${index % 20}-${index}`);
      client.subscribe('cds');
      client.subscribe('rds', index % 20 === 7 ? ['web', 'gone'] : ['web']);
      return client;
    });
    for (const client of clients) await client.gets('cds', clusters('1'));
    const end = 'value must be inside range [200, 600)';
    for (const client of clients.filter((_, index) => index % 20 >= 10 && index < 200)) {
      client.rejects = ({ resources }) =>
        resources.get('c31') === '2' ? `Proto constraint validation failed (${end})` : undefined;
    }
    plane.set('cds', clusters('2'));
    await using open = await browser.open(`http://${relay.admin}/`, desktop);
    const { page } = open;
    await shows(page, '100 clients of 10 classes reject cds c31', '20 clients with env=e7 get no rds gone');
    const { state, wrong, rows } = z
      .object({ state: z.string(), wrong: z.number(), rows: z.array(z.string()) })
      .parse(
        await page.evaluate(`
          const of = (selector) => [...document.querySelectorAll(selector)];
          ({
            state: of('.state')[0].innerText,
            wrong: of('.problems > li:not(.ok)').length,
            rows: of('.problems > li').map((row) => row.innerText),
          });
        `),
      );
    // A name that no class gets is shown, for information only.
    expect(state).to.equal(`ready (serves; ${wrong === 1 ? '1 problem' : `${wrong} problems`})`);
    // Which share of all changes went wrong is counted every ten seconds: it is there already, or not yet.
    const causes = rows.filter((row) => !row.includes('were late or rejected'));
    expect(causes).to.have.length(2);
    expect(wrong, rows.join('\n')).to.equal(rows.length - 1);
    // 10 of the 20 clients of a class reject: half of its ribbon is red.
    const heights = await page.evaluate(`
      const heightOf = (node) => node.getBBox().height;
      const link = [...document.querySelectorAll('.delta a')].find((one) => one.ariaLabel.startsWith('env=e10: 20 streams, 10 rejecting'));
      [...link.querySelectorAll('.bar')].map(heightOf);
    `);
    const [red = 0, green = 0] = z.array(z.number()).parse(heights);
    expect(red / green).to.be.within(0.8, 1.25);
    // The page may have asked before the last of them were rejected: it asks again after ten seconds.
    await eventually(async () => {
      expect(await page.locator('.matrix tbody tr').first().innerText()).to.match(/^c31\s/);
    });
    expect(await page.locator('tbody tr', { hasText: 'rejected' }).first().innerText()).to.include(end);

    await page.locator('.problems').getByRole('link', { name: 'env=e10' }).click();
    await shows(page, '10 of 400', 'class env=e10', 'rejected c31');
    await page.locator('.problems').getByRole('link', { name: 'clients' }).nth(1).click();
    await shows(page, '20 of 400', 'with gone');
    await page
      .locator('.problems')
      .getByRole('button', { name: /copy distributary history/ })
      .click();
    await eventually(async () => {
      expect(await page.locator('.problems button').first().innerText()).to.match(/copied|selected/);
    });
    await page.locator('.problems').getByRole('link', { name: 'runbook' }).first().click();
    await shows(page, 'Clients reject what they are sent', 'How to know that it is resolved');
    expect(await page.locator('.runbook h3').allInnerTexts()).to.have.length(4);
    await page.locator('.runbook').getByRole('button').first().waitFor();
    expectClean(open);
  });

  it('on a telephone, state and cause come first, and which relay it is exactly comes last', async () => {
    const { browser, world } = there();
    await using open = await browser.open(world.url, phone);
    const { page } = open;
    await shows(page, 'Serving');
    const tops = await page.evaluate(`
      ['.state', '.sentence', '#main', '.facts'].map((name) => document.querySelector(name).getBoundingClientRect().top);
    `);
    const found = z.array(z.number()).parse(tops);
    expect(found).to.deep.equal(found.toSorted((a, b) => a - b));
    expectClean(open);
  });

  it('on a telephone, words of a table and commands of a runbook are not broken', async () => {
    const { browser, world } = there();
    await using open = await browser.open(`${world.url}?show=runbook&name=change-held`, phone);
    const { page } = open;
    await shows(page, 'What to do');
    const tops = await page.evaluate(
      `[...document.querySelectorAll('.typed .copyable')].map((one) => one.getBoundingClientRect().top)`,
    );
    expect(new Set(z.array(z.number()).min(2).parse(tops)), 'a line for each command').to.have.length(
      z.array(z.number()).parse(tops).length,
    );
    const hiddenBy = (table: string): Promise<unknown> =>
      page.evaluate(
        `[...document.querySelectorAll('.scroll:has(${table})')].map((one) => one.scrollWidth - one.clientWidth)`,
      );
    await page.goto(world.url);
    await shows(page, 'prod-1', 'acknowledged');
    expect(await hiddenBy('.clients'), 'the states are in sight').to.deep.equal([0]);
    await page.getByRole('link', { name: 'test-1', exact: true }).first().click();
    await shows(page, 'Client test-1', 'env == "test"');
    expect(
      z
        .array(z.number())
        .min(4)
        .parse(await hiddenBy('.holdings')),
    ).to.satisfy((widths: readonly number[]) => widths.every((width) => width === 0));
    const widths = await page.evaluate(
      `[...document.querySelectorAll('td.mono')].filter((one) => one.checkVisibility()).map((one) => one.clientWidth)`,
    );
    expect(Math.min(...z.array(z.number()).min(1).parse(widths))).to.be.at.least(100);
    expectClean(open);
  });

  it("works over TLS, for a browser with a certificate of the operators' authority", async () => {
    const { browser } = there();
    const authority = issueCertificate({ name: 'operators', authority: true });
    const server = issueCertificate({ name: 'relay', issuer: authority, dns: ['localhost'] });
    const operator = issueCertificate({ name: 'operator', issuer: authority });
    using pem = new PemFiles();
    const tls = { ...pem.identity('admin', server), ca: pem.bundle('ca.crt', [authority]) };
    await using secure = await PageWorld.start({ admin: { tls, read_only: true } });
    const origin = `https://${secure.relay.admin}`;
    const identity = {
      origin,
      cert: Buffer.from(operator.certificate),
      key: Buffer.from(operator.privateKey),
    };
    await using open = await browser.open(`${origin}/`, {
      ...desktop,
      ignoreHTTPSErrors: true,
      clientCertificates: [identity],
    });
    const { page } = open;
    await shows(page, 'Serving 16 clients', 'read only', '16 of 16');
    expectClean(open);
  });

  it('lists a client that polls, with its last poll, version and state, and leads to what it has', async () => {
    const { browser } = there();
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], rest: {} });
    const poll = (version: string): Promise<Answer> => {
      const request = JSON.stringify({ node: { id: 'poller' }, version_info: version });
      return send('POST', `http://${relay.rest}/v3/discovery:clusters`, request, 'application/json');
    };
    // It ends with 503 while the file is not read yet.
    const { versionInfo } = await eventually(async () =>
      z.looseObject({ versionInfo: z.string() }).parse(JSON.parse((await poll('')).body)),
    );
    await poll(versionInfo);
    await using open = await browser.open(`http://${relay.admin}/`, desktop);
    const { page } = open;
    await shows(
      page,
      'Serving 1 client',
      '1 of 1',
      /rest, polled \d+ s ago/,
      'cds acknowledged',
      '(no parameters)',
    );
    await page.getByRole('link', { name: 'poller', exact: true }).click();
    await shows(page, 'Client poller', 'shop', 'rest (polls)', 'None: it was sent the newest');
    expectClean(open);
  });

  it('shows what clients report of their requests, those that fail first, and says how they come to report', async () => {
    const { browser, world } = there();
    await using none = await browser.open(world.url, desktop);
    await shows(none.page, 'No client has reported any request', 'rollout.traffic', 'load_stats_config');
    expectClean(none);
    for (const workers of [0, 2]) {
      await using plane = await new LoadPlane({ sendAllClusters: true }).listen();
      await using relay = await RelayProcess.start({
        workers,
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        parameters: [{ key: 'env', from: 'node.metadata.env' }],
      });
      using prod = new LoadReporter(relay.xds, 'prod-1', { env: 'prod' });
      using test = new LoadReporter(relay.xds, 'test-1', { env: 'test' });
      await eventually(() => expect(prod.told.length + test.told.length).to.equal(2));
      // More than an answer has.
      for (const each of [prod, test])
        each.send({
          clusterStats: Array.from({ length: 4900 }, (_, at) => ({
            clusterName: `c${at}`,
            upstreamLocalityStats: [{ totalSuccessfulRequests: 100n }],
          })),
        });
      const report = (): void => {
        prod.report('billing', 10, 0, 1);
        test.report('billing', 20, 0, 15);
        test.send({ clusterStats: [{ clusterName: 'b\u202ed', totalDroppedRequests: 4000n }] });
      };
      report();
      // What was reported is shown for half a minute, and what follows may take longer.
      const reports = setInterval(report, 2000);
      using ends = new DisposableStack();
      ends.defer(() => clearInterval(reports));
      await using open = await browser.open(`http://${relay.admin}/`, desktop);
      const { page } = open;
      const table = page.getByRole('region', { name: 'Load' });
      const rows = async (): Promise<readonly string[]> =>
        (await table.locator('tbody tr').allInnerTexts()).map((row) => row.replaceAll(/\s+/g, ' '));
      await shows(page, /30 rows of the last \d+ s, [49],\d{3} not shown/);
      // The first answer may be older than the last report; the next one comes ten seconds later.
      await eventually(async () => {
        const first = await rows();
        expect(first).to.have.length(30);
        expect(first[0]).to.match(/^billing env=test [\d.]+ 75\.0 % 0\.0$/);
        expect(first[1]).to.match(/^billing env=prod [\d.]+ 10\.0 % 0\.0$/);
        expect(first[2]).to.match(/^c0 env=\w+ [\d.]+ 0 % 0\.0$/);
      });
      const search = page.getByRole('searchbox', { name: 'Search by reported cluster' });
      await search.fill('b');
      await eventually(async () => expect(await rows()).to.have.length(3));
      expect((await rows())[2]).to.match(/^b\\u\{202e\}d env=test 0\.0 – [\d.]+$/);
      expect(page.url()).to.include('load=b');
      await search.fill('nobody');
      await shows(page, 'No cluster matches.');
      await search.fill('bill*');
      await eventually(async () => expect(await rows()).to.have.length(2));
      await table.getByRole('link', { name: 'env=prod' }).click();
      expect(page.url()).to.match(/class=[0-9a-f]{16}/);
      expectClean(open);
    }
  });

  it('works with workers', async () => {
    const { browser } = there();
    await using split = await PageWorld.start({ workers: 2 });
    await using open = await browser.open(split.url, desktop);
    const { page } = open;
    await shows(page, 'Serving 16 clients', /workers\s+2 of 2/, '9 up to date');
    await page.getByRole('searchbox', { name: /Search by node/ }).fill('dev-2');
    await shows(page, '1 of 16');
    await page.getByRole('link', { name: 'dev-2', exact: true }).click();
    await shows(page, 'Client dev-2', 'recommendations', 'None: it was sent the newest');
    expectClean(open);
  });
});
