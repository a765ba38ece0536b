import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { systemClock } from '../../src/model/clock.ts';
import { Notifications, type NotifySettings, type RolloutNews } from '../../src/rollout/notifications.ts';
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

  const notifying = (settings: Partial<NotifySettings> = {}): Notifications =>
    new Notifications([{ url: hook.url, events, ...settings }], {
      clock: systemClock,
      relay: 'relay-1',
      told: (_, result) => results.push(result.ok ? 'sent' : result.error),
    });

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
