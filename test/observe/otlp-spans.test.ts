import { execFile } from 'node:child_process';
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { systemClock } from '../../src/model/clock.ts';
import { Conditions } from '../../src/observe/conditions.ts';
import { createLog } from '../../src/observe/log.ts';
import { otlpSpans } from '../../src/observe/otlp-spans.ts';
import type { Spans } from '../../src/observe/update-traces.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { OtlpCollector } from '../e2e/support/otlp-collector.ts';
import { cpuSeconds } from '../support/cpu.ts';

const root = join(import.meta.dirname, '../..');

function spansTo(endpoint: string, ratio = 1) {
  return otlpSpans(endpoint, ratio, '1.2.3', 'relay', new Conditions(createLog({ level: 'silent' })));
}

function spin(spans: Spans, count: number): number {
  let sampled = 0;
  for (let one = 0; one < count; one++) {
    const span = spans.start('update', systemClock.monotonic(), { one });
    if (span !== undefined) sampled++;
    span?.end(systemClock.monotonic());
  }
  return sampled;
}

describe('spans to an OTLP collector', () => {
  it('are sampled by the ratio', async () => {
    await using collector = await OtlpCollector.start();
    for (const [ratio, least, most] of [
      [0, 0, 0],
      [0.5, 350, 650],
      [1, 1000, 1000],
    ] as const) {
      const spans = spansTo(collector.url, ratio);
      expect(spin(spans, 1000), `ratio ${ratio}`).to.be.within(least, most);
      await spans.stop();
    }
  });

  for (const path of ['', '/', '/v1/traces', '/v1/traces/']) {
    it(`go to /v1/traces for the endpoint http://HOST:PORT${path}`, async () => {
      await using collector = await OtlpCollector.start();
      const spans = spansTo(`${collector.url}${path}`);
      spin(spans, 3);
      await spans.stop();
      expect(collector.spans).to.have.length(3);
    });
  }

  it('wait in a bounded queue while the collector does not answer, and the end does not wait for it', async () => {
    const held: ServerResponse[] = [];
    let requests = 0;
    const server = createServer((request, response) => {
      requests++;
      request.resume();
      held.push(response);
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    try {
      const address = server.address();
      const spans = spansTo(`http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`);
      spin(spans, 1000);
      await eventually(() => expect(requests).to.equal(1));
      const before = cpuSeconds();
      spin(spans, 20_000);
      expect(cpuSeconds() - before, 'seconds of CPU for 20,000 spans').to.be.lessThan(5);
      await spans.stop(); // ends, though nobody answers
      expect(requests, 'one for each 256 of the 2,048 that wait, at most').to.be.lessThan(12);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  it('without an endpoint the SDK is not loaded', async () => {
    // prom-client loads @opentelemetry/api.
    const program = `
      import { registerHooks } from 'node:module';
      const seen = [];
      registerHooks({ resolve: (name, context, next) => (seen.push(name), next(name, context)) });
      await import(${JSON.stringify(join(root, 'src/commands/serve.ts'))});
      await import(${JSON.stringify(join(root, 'src/workers/worker.ts'))});
      const ours = (name) => /otlp|@opentelemetry\\/(?!api$)/.test(name);
      console.log([...new Set(seen.filter(ours))].join(), seen.includes('@opentelemetry/api'));
    `;
    const argv = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', program];
    const { stdout } = await promisify(execFile)(process.execPath, argv);
    expect(stdout).to.equal(' true\n');
  });
});
