import { join } from 'node:path';
import { expect } from 'chai';
import { explainedOf } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { clientsOf, csdsOf } from './support/relay-state.ts';

describe('clients that come back to a restarted relay with what they have', function () {
  this.timeout(240_000);

  for (const [protocol, workers] of [
    ['delta', 0],
    ['delta', 2],
    ['sotw', 0],
  ] as const) {
    it(`§9 ${protocol}, current: nothing is sent, and they are SYNCED (workers: ${workers})`, async () => {
      using directory = temporaryDirectory();
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1' });
      const config = {
        drain_timeout: '100ms',
        xds: { sotw_versions: 'CONTENT' },
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        cache: { persistence: { path: join(directory.path, 'kept') } },
        ...(workers === 0 ? {} : { workers }),
      };
      await using before = await RelayProcess.start(config);
      using pool = new ClientPool(before.xds, 1);
      const earlier = pool.open(protocol, 'back');
      earlier.subscribe('cds');
      await earlier.gets('cds', { a: '1', b: '1' });
      await before.stop();

      await using relay = await RelayProcess.start(config);
      using again = new ClientPool(relay.xds, 1);
      const client = again.open(protocol, 'back');
      client.subscribe('cds', [], earlier);
      await eventually(async () => {
        const [listed] = await clientsOf(relay);
        expect(listed?.types.map(({ type, state }) => `${type} ${state}`)).to.deep.equal(['cds SYNCED']);
      });
      await eventually(async () => expect(await csdsOf(relay, 'back')).to.deep.equal(['SYNCED', 'SYNCED']));
      expect(await explainedOf(relay, 'back', 'cds', 'a')).to.not.include('nothing sent yet');
      expect(client.said).to.deep.equal([]);
    });
  }
});
