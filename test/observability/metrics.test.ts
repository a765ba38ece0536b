import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from '../e2e/support/eventually.ts';
import { ModelPlane } from '../e2e/support/model-plane.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { prometheusBinaries, promtool } from '../e2e/support/prometheus.ts';
import { ClientPool } from '../e2e/support/recording-client.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { need } from '../e2e/support/skip.ts';

describe('metrics as Prometheus reads them', () => {
  for (const workers of [0, 2]) {
    it(`promtool has nothing to say to them (workers: ${workers})`, async function () {
      const binaries = await need(this, prometheusBinaries());
      using files = temporaryDirectory();
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] }, max_removal_percent: 50 }],
        cache: { persistence: { path: join(files.path, 'cache') } },
        workers,
      });
      using pool = new ClientPool(relay.xds, 1);
      const client = pool.open('delta');
      client.subscribe('cds');
      await client.gets('cds', { a: '1' });
      plane.set('cds', { a: '2' });
      await client.gets('cds', { a: '2' });
      await eventually(async () => expect(await relay.metric('acknowledged_seconds_count')).to.equal(1));
      const text = join(files.path, 'metrics');
      writeFileSync(text, (await relay.get('/metrics')).body);
      expect(await promtool(binaries, ['check', 'metrics'], { stdin: text })).to.deep.equal({
        code: 0,
        output: '',
      });
    });
  }
});
