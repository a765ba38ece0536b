import { expect } from 'chai';
import { Code } from '../../src/wire/grpc-status.ts';
import { cases } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';

const five = Object.fromEntries(['a', 'b', 'c', 'd', 'e'].map((name) => [name, '1']));
const central = (plane: ModelPlane): object => ({
  name: 'central',
  ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '100ms' } },
});

describe('connections that the relay ends', () => {
  it('SIGTERM: 503 first, GOAWAY, then 50 streams end over drain_timeout, a few at a time, also after a SIGHUP; exit 0', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', five);
    await using relay = await RelayProcess.start({ upstreams: [central(plane)], drain_timeout: '6s' });
    using pool = new ClientPool(relay.xds, 50);
    const clients = Array.from({ length: 50 }, () => pool.open('delta'));
    for (const client of clients) client.subscribe('cds');
    for (const client of clients) await client.gets('cds', five);
    relay.signal('SIGTERM');
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(503));
    relay.signal('SIGHUP');
    expect(
      clients.filter(({ status }) => status === undefined).length,
      'not ready comes first',
    ).to.be.greaterThan(25);
    for (const client of clients) expect((await client.ends()).code).to.equal(Code.UNAVAILABLE);
    expect(await relay.exited).to.equal(0);
    // A few at a time: `wire/drain` has it, on a clock of its own. This process may hear of many at once.
    const ends = clients.map(({ endedAt }) => endedAt);
    expect(Math.max(...ends) - Math.min(...ends), 'spread, ms').to.be.at.least(2000);
  });

  for (const workers of cases(2, 0)) {
    it(`SIGTERM: a stream that is still open is answered what is new to it (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', five);
      const config = { upstreams: [central(plane)], drain_timeout: '20s', workers };
      await using relay = await RelayProcess.start(config);
      using pool = new ClientPool(relay.xds, 10);
      const clients = Array.from({ length: 10 }, () => pool.open('delta'));
      for (const client of clients) client.subscribe('cds', ['a']);
      for (const client of clients) await client.gets('cds', { a: '1' });
      relay.signal('SIGTERM');
      await eventually(() => expect(clients.some(({ status }) => status !== undefined)).to.equal(true));
      // One after the other ends. The names are on one stream to the control plane, the wildcard is on a new one.
      plane.set('eds', { e: '1', f: '1' });
      for (const names of [['e'], ['*']]) {
        const open = clients.filter(({ status }) => status === undefined);
        for (const client of open) client.subscribe('eds', names);
        const last = names.includes('*') ? 'f' : 'e';
        await eventually(() => expect(open.some((client) => last in client.has('eds'))).to.equal(true));
      }
    });
  }

  it('max_connection_age: each is ended at an age of its own, and who comes back is sent nothing twice', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', five);
    await using relay = await RelayProcess.start({
      upstreams: [central(plane)],
      xds: { max_connection_age: '4s', sotw_versions: 'CONTENT' },
    });
    using pool = new ClientPool(relay.xds, 20);
    const clients = Array.from({ length: 20 }, (_, at) => pool.open(at % 2 === 0 ? 'delta' : 'sotw'));
    const start = performance.now();
    for (const client of clients) client.subscribe('cds');
    for (const client of clients) await client.gets('cds', five);
    for (const client of clients) {
      const { code, details } = await client.ends();
      expect(code).to.equal(Code.UNAVAILABLE);
      expect(details).to.include('max_connection_age');
    }
    const ages = clients.map(({ endedAt }) => endedAt - start);
    // 4 s ± 10 %, and a grace of 200 ms.
    expect(Math.min(...ages)).to.be.greaterThan(3400);
    expect(Math.max(...ages) - Math.min(...ages), 'jitter, ms').to.be.greaterThan(50);
    using again = new ClientPool(relay.xds, 20);
    const returned = clients.map((before): [RecordingClient, RecordingClient] => [
      again.open(before.protocol),
      before,
    ]);
    for (const [client, before] of returned) client.subscribe('cds', [], before);
    plane.set('cds', { ...five, f: '1' });
    for (const [client] of returned) {
      await eventually(() => expect(client.has('cds')).to.include({ f: '1' }));
      const names = client.said.flatMap(({ resources }) => [...resources.keys()]);
      if (client.protocol === 'delta') expect(names).to.deep.equal(['f']);
      else expect(client.said, 'only the change').to.have.length(1);
    }
  });
});
