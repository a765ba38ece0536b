import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { type Clock, systemClock } from '../../src/model/clock.ts';
import { Notifications, type NotifySettings, type RolloutNews } from '../../src/releases/notifications.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { Webhook } from '../e2e/support/webhook.ts';

const events = ['HELD', 'DISCARDED', 'RELEASED', 'RESOLVED'] as const;
const held: RolloutNews = {
  event: 'HELD',
  cause: 'rejected',
  reason: 'lds web: no such filter',
  upstreams: ['central'],
  types: ['lds', 'rds'],
  names: ['web', 'routes'],
  count: 2,
};

describe('notifications of changes', function () {
  this.timeout(20_000);

  let hook: Webhook;
  let results: string[];

  beforeEach(async () => {
    hook = await Webhook.start();
    results = [];
  });

  afterEach(() => hook[Symbol.dispose]());

  const notifying = (settings: Partial<NotifySettings> = {}, clock: Clock = systemClock): Notifications =>
    new Notifications([{ url: hook.url, events, ...settings }], clock, 'relay-1', (_, result) =>
      results.push(result.ok ? 'sent' : result.error),
    );

  const told = (): Record<string, unknown>[] =>
    hook.told.map((body) => JSON.parse(body) as Record<string, unknown>);

  it('say in a line and in fields what has become of which change', async () => {
    notifying().tell(held);
    await eventually(() => expect(results).to.deep.equal(['sent']));
    const { time, ...rest } = told()[0] ?? {};
    expect(rest).to.deep.equal({
      ...held,
      relay: 'relay-1',
      text: 'relay-1: a change of central (lds, rds: 2 names, web among them) is held: lds web: no such filter',
    });
    expect(Date.parse(String(time))).to.be.closeTo(Date.now(), 10_000);
  });

  it('have no words of a client that Slack takes for a mention or a link', async () => {
    const reason = 'lds web: <!channel> <https://evil.example|open the runbook> & more';
    notifying().tell({ ...held, reason });
    await eventually(() => expect(results).to.deep.equal(['sent']));
    expect(told()[0]?.['reason']).to.equal(reason);
    expect(told()[0]?.['text'])
      .to.match(/ &lt;https:\/\/evil\.example\|open the runbook&gt; &amp; more$/)
      .and.not.match(/[<>]/);
  });

  it('are sent again until they are taken, in their order', async () => {
    hook.status = 500;
    const notifications = notifying();
    notifications.tell(held);
    notifications.tell({ ...held, event: 'RELEASED' });
    await eventually(() => expect(hook.told).to.have.lengthOf(1));
    hook.status = 204;
    await eventually(() => expect(results).to.deep.equal(['sent', 'sent']));
    expect(told().map(({ event }) => event)).to.deep.equal(['HELD', 'HELD', 'RELEASED']);
  });

  it('a server that a reload has taken away is not asked again', async () => {
    hook.status = 500;
    const waits: { readonly milliseconds: number; readonly run: () => void }[] = [];
    const after = (milliseconds: number, run: () => void) => {
      waits.push({ milliseconds, run });
      return { cancel: () => {} };
    };
    const notifications = notifying({}, { ...systemClock, after });
    notifications.tell(held);
    const wait = await eventually(() => {
      const [, retry] = waits;
      if (retry === undefined) throw new Error('it does not wait for another attempt yet');
      return retry;
    });
    notifications.reload([]);
    wait.run();
    await setImmediate();
    expect(waits.map(({ milliseconds }) => milliseconds)).to.deep.equal([10_000, 1000]);
  });

  it('one that is on its way does not keep the process alive', async () => {
    hook.isSilent = true;
    const sockets = (): number =>
      process.getActiveResourcesInfo().filter((one) => one === 'TCPSocketWrap').length;
    const before = sockets();
    notifying().tell(held);
    await eventually(() => expect(hook.told).to.have.lengthOf(1));
    // That of the server here.
    expect(sockets() - before).to.equal(1);
  });

  it('are of the events that are asked for', async () => {
    const notifications = notifying({ events: ['DISCARDED'] });
    for (const event of events) notifications.tell({ ...held, event });
    await eventually(() => expect(results).to.deep.equal(['sent']));
    expect(told().map(({ event }) => event)).to.deep.equal(['DISCARDED']);
  });

  it('are signed with the key of a file, over the time and the body', async () => {
    using files = temporaryDirectory();
    const hmacFile = join(files.path, 'key');
    writeFileSync(hmacFile, 'key-of-1\n');
    notifying({ hmacFile }).tell(held);
    await eventually(() => expect(results).to.deep.equal(['sent']));
    const { 'x-distributary-timestamp': at, 'x-distributary-signature': signature } = hook.headers[0] ?? {};
    const hmac = createHmac('sha256', 'key-of-1').update(`${String(at)}.${hook.told[0] ?? ''}`);
    expect(signature).to.equal(`sha256=${hmac.digest('hex')}`);
  });

  it('a server that takes none has a hundred that wait, the newest', async () => {
    hook.status = 503;
    const notifications = notifying();
    for (let count = 0; count < 105; count++) notifications.tell({ ...held, count });
    await eventually(() => expect(hook.told).to.have.lengthOf(1));
    expect(results).to.deep.equal(Array.from({ length: 4 }, () => '100 others wait'));
    notifications.stop();
  });
});
