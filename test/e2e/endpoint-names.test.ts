import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { root, temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { readyOf } from './support/relay-state.ts';

const probe = join(root, 'test/e2e/support/names-probe.ts');

describe('an endpoint that is a name of many addresses, on the real process', () => {
  it('is served by the address that works, whichever comes first, and by the addresses of later', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    const [host = '', port = ''] = plane.address.split(':');
    using files = temporaryDirectory();
    const names = join(files.path, 'names.json');
    const nobody = ['127.0.11.1', '127.0.11.2'];
    writeFileSync(names, JSON.stringify({ 'planes.test': nobody }));
    const backoff = { initial: '20ms', max: '100ms' };
    await using relay = await RelayProcess.start(
      { upstreams: [{ name: 'central', ads: { endpoints: [`planes.test:${port}`], backoff } }] },
      { flags: [`--import=${probe}`], env: { NAMES: names } },
    );
    await eventually(() => expect(relay.output).to.include('connection refused'));
    expect((await readyOf(relay)).status).to.equal(503);

    writeFileSync(names, JSON.stringify({ 'planes.test': [...nobody, host] }));
    await eventually(async () => expect((await readyOf(relay)).status).to.equal(200));
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });
  });
});
