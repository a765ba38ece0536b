import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { eventually } from '../e2e/support/eventually.ts';
import { ModelPlane } from '../e2e/support/model-plane.ts';
import { root, temporaryDirectory } from '../e2e/support/paths.ts';
import { PemFiles } from '../e2e/support/pem-files.ts';
import { Prometheus, prometheusBinaries } from '../e2e/support/prometheus.ts';
import { ClientPool } from '../e2e/support/recording-client.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { need } from '../e2e/support/skip.ts';
import { issueCertificate } from '../support/certificates.ts';

const directory = join(root, 'deploy/observability');
const panel = z.looseObject({
  type: z.string(),
  title: z.string().min(1),
  targets: z.array(z.looseObject({ expr: z.string(), legendFormat: z.string() })).optional(),
});
const { panels } = z
  .looseObject({ panels: z.array(panel) })
  .parse(JSON.parse(readFileSync(join(directory, 'dashboard.json'), 'utf8')));
const queries = panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })));

/** As Grafana fills it in, with all jobs and relays chosen. */
const filled = (expr: string): string =>
  expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(job|instance)/g, '.*');

describe('dashboard', () => {
  for (const workers of [0, 1])
    it(`each query of each panel has an answer of a Prometheus that scrapes a relay (workers: ${workers})`, async function () {
      const binaries = await need(this, prometheusBinaries());
      expect(queries.length).to.be.above(40);
      using files = temporaryDirectory();
      using pem = new PemFiles();
      const certificate = issueCertificate({ name: 'relay', ips: ['127.0.0.1'], days: 30 });
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '0' });
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rest: { tls: pem.identity('rest', certificate) },
        metrics: {},
        workers,
        cache: { persistence: { path: join(files.path, 'cache') } },
      });
      const rules = ['alerts.yaml', 'recording-rules.yaml'].map((file) => join(directory, file));
      await using prometheus = await Prometheus.start(binaries, [relay.metrics], rules);
      using pool = new ClientPool(relay.xds, 1);
      const client = pool.open('delta');
      client.subscribe('cds');
      await client.gets('cds', { a: '0' });
      let changes = 0;
      const unanswered = new Set(queries.filter(({ expr }) => workers > 0 || !expr.includes('worker_feed')));
      await eventually(
        async () => {
          changes += 1;
          plane.set('cds', { a: String(changes) });
          await client.gets('cds', { a: String(changes) });
          for (const query of unanswered) {
            const samples = await prometheus.query(filled(query.expr));
            if (samples.some(({ value: [, value] }) => value !== 'NaN')) unanswered.delete(query);
          }
          expect([...unanswered].map(({ title, expr }) => `${title}: ${expr}`)).to.deep.equal([]);
        },
        { timeout: 60_000, pause: 500 },
      );
      expect(await prometheus.query('ALERTS{alertstate="firing"}'), 'nothing is wrong').to.deep.equal([]);
    });
});
