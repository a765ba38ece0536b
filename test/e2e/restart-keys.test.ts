import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';

const history = z.object({ changes: z.array(z.object({ accepted: z.number() })) });
/** Of the node that control planes are shown. */
const environment = z.object({ node: z.object({ metadata: z.object({ env: z.string() }) }) });

describe('keys that take effect after a restart', () => {
  it('a reload changes nothing of what is written, asked for and counted by them', async () => {
    using directory = temporaryDirectory();
    await using plane = await ModelPlane.start();
    const configOf = (env: string, more: object): RelayConfig => ({
      node: { id: 'relay', cluster: 'relays', metadata: { env } },
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address], ...more } }],
      cache: { persistence: { path: join(directory.path, 'kept') } },
    });
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start(configOf('prod', {}));
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });

    // The upstream is made anew.
    const changed = { ...configOf('test', { resource_timeout: '3s' }), workers: 2 };
    await relay.reconfigure(changed);
    const [line] = await relay.says(/after a restart/);
    expect(line?.['keys']).to.deep.equal(['node', 'workers']);
    plane.set('cds', { a: '2' });
    await client.gets('cds', { a: '2' });
    const shown = plane.requests.flatMap((request) => environment.safeParse(request).data ?? []);
    expect(new Set(shown.map(({ node }) => node.metadata.env))).to.deep.equal(new Set(['prod']));
    await eventually(async () => {
      const { body } = await relay.rpc('distributary.admin.v1.AdminService/History', { limit: 1 });
      expect(history.parse(JSON.parse(body)).changes).to.deep.equal([{ accepted: 1 }]);
    });
    await eventually(async () => expect(await relay.metric('persistence_lag_seconds')).to.equal(0));
    await relay.stop();
    plane.kill();

    await using next = await RelayProcess.start(changed);
    const [reason] = await next.says(/^nothing was restored for an upstream$/);
    expect(reason).to.include({ upstream: 'central', reason: 'what decides its content has changed' });
  });
});
