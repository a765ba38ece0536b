import { expect } from 'chai';
import { manyResources, ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { XdsClient } from '../e2e/support/xds-client.ts';

const KB = 1024;
const clusters = 5000;
const streams = 60;
/** What each costs for itself: its subscription, its connection here, and what it was sent until it accepts that. */
const mostPerStream = 200 * KB;

describe('streams with the wildcard and a name that nobody has', () => {
  for (const protocol of ['sotw', 'delta'] as const) {
    it(`share what the wildcard shows: ${protocol}`, async () => {
      using files = new ResourceFiles();
      files.write('cds', manyResources(clusters));
      await using relay = await RelayProcess.startMeasurable({ upstreams: [files.upstream] });
      await using stack = new AsyncDisposableStack();
      const open = async (names: readonly string[]): Promise<XdsClient> => {
        const client = stack.use(new XdsClient(relay.xds, protocol));
        client.subscribe('cds', [...names]);
        await client.gets('cds');
        return client;
      };
      await open(['*']);
      await open(['*', 'warm-up']);
      const before = await relay.memory();
      const clients: XdsClient[] = [];
      for (let at = 0; at < streams; at++) clients.push(await open(['*', `z${at}`]));
      const each = ((await relay.memory()).used - before.used) / streams;
      if (process.env['FIGURES'] === '1') process.stdout.write(`${protocol}: ${Math.round(each / KB)} KB\n`);
      expect(each).to.be.below(mostPerStream);
    });
  }
});
