import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { get, send } from './support/http.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';

const central = (plane: ModelPlane): object => ({ name: 'central', ads: { endpoints: [plane.address] } });
/** Nothing listens on port 1. */
const dead = (changes: object = {}): object => ({
  name: 'dead',
  types: ['rtds'],
  ads: { endpoints: ['127.0.0.1:1'], backoff: { initial: '20ms', max: '100ms' } },
  ...changes,
});

describe('what probes and load balancers see', () => {
  for (const workers of cases(2, 0)) {
    it(`metrics: /metrics, /ready and /healthz on a listener of their own, nothing else (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      await using relay = await RelayProcess.start({ upstreams: [central(plane)], metrics: {}, workers });
      const url = (path: string): string => `http://${relay.metrics}${path}`;
      await eventually(async () => expect((await get(url('/ready'))).status).to.equal(200));
      expect((await get(url('/healthz'))).body).to.equal('ok\n');
      expect((await get(url('/metrics'))).body).to.include(
        'distributary_upstream_connected{upstream="central"} 1',
      );
      for (const path of ['/', '/config_dump', '/metrics/x', '/distributary.admin.v1.AdminService/Status']) {
        const answer = await get(url(path));
        expect(answer.status, path).to.equal(404);
        expect(answer.body, path).to.include('GET /healthz, GET /ready or GET /metrics');
      }
      const posted = await send(
        'POST',
        url('/distributary.admin.v1.AdminService/ReleaseRemovals'),
        '{}',
        'application/json',
      );
      expect(posted.status).to.equal(404);
      expect((await send('POST', url('/ready'), '', 'text/plain')).status).to.equal(405);
    });
  }

  it('required: false: a dead upstream does not keep a new relay from being ready; else it does', async () => {
    await using plane = await ModelPlane.start();
    await using relay = await RelayProcess.start({ upstreams: [dead(), central(plane)] });
    await eventually(async () => expect((await relay.get('/ready')).body).to.include('"connected": true'));
    expect((await relay.get('/ready')).status).to.equal(503);
    relay.configure({ upstreams: [dead({ required: false }), central(plane)] });
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    expect((await relay.get('/ready')).body).to.include('"required": false');
  });

  for (const workers of cases(1, 0)) {
    it(`drain_delay: not ready at once, new clients are served meanwhile (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [central(plane)],
        drain_delay: '8s', // a busy machine takes seconds for what is asked meanwhile
        drain_timeout: '1s',
        workers,
      });
      using pool = new ClientPool(relay.xds, 2);
      const before = pool.open('delta');
      before.subscribe('cds');
      await before.gets('cds', { a: '1' });
      const start = performance.now();
      relay.signal('SIGTERM');
      await eventually(async () => expect((await relay.get('/ready')).status).to.equal(503));
      const late = pool.open('sotw');
      late.subscribe('cds');
      await late.gets('cds', { a: '1' });
      plane.set('cds', { a: '2' });
      await before.gets('cds', { a: '2' });
      expect(before.status, 'no stream has ended').to.equal(undefined);
      await before.ends();
      expect(before.endedAt - start).to.be.greaterThan(7900);
      expect(await relay.exited).to.equal(0);
    });
  }
});
