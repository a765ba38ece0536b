import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { clientsOf, readyOf } from './support/relay-state.ts';

const relayOf = (
  { address }: ModelPlane,
  protocol: 'SOTW' | 'DELTA',
  workers: number,
): Promise<RelayProcess> =>
  RelayProcess.start({
    drain_timeout: '100ms',
    upstreams: [upstream(address, protocol)],
    cache: { idle_ttl: '1h' },
    ...(workers === 0 ? {} : { workers }),
  });

describe('endpoints of clusters that have gone', () => {
  for (const workers of cases(0, 2)) {
    it(`SOTW upstream: they go with their cluster, and not after idle_ttl (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1' });
      plane.set('eds', { a: '1', b: '1' });
      await using relay = await relayOf(plane, 'SOTW', workers);
      const endpoints = () => relay.metric('cache_resources', 'type="eds"');
      {
        using pool = new ClientPool(relay.xds, 1);
        const client = pool.open('delta');
        client.subscribe('cds');
        client.subscribe('eds', ['a', 'b']);
        await client.gets('cds', { a: '1', b: '1' });
        await client.gets('eds', { a: '1', b: '1' });
        plane.set('cds', { b: '1' });
        plane.set('eds', { b: '1' });
        await client.gets('cds', { b: '1' });
        client.unsubscribe('eds', ['a']);
        await eventually(async () => expect(await endpoints()).to.equal(1));
      }
      // Nobody is there any more. The cluster is, and its endpoints stay for who comes back.
      await eventually(async () => expect(await clientsOf(relay)).to.have.length(0));
      await always(async () => {
        expect(await endpoints()).to.equal(1);
      }, 3000);
    });

    it(`SOTW upstream: in an outage those without a cluster stay for who comes back (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      plane.set('eds', { a: '1', own: '1' });
      await using relay = await relayOf(plane, 'SOTW', workers);
      const endpoints = () => relay.metric('cache_resources', 'type="eds"');
      const asks = async (): Promise<void> => {
        using pool = new ClientPool(relay.xds, 1);
        const client = pool.open('sotw');
        client.subscribe('cds');
        client.subscribe('eds', ['a', 'own']);
        await client.gets('eds', { a: '1', own: '1' });
      };
      await asks();
      await plane[Symbol.asyncDispose]();
      await eventually(async () => expect((await readyOf(relay)).stale).to.equal(true));
      await asks();
      await eventually(async () => expect(await clientsOf(relay)).to.have.length(0));
      await always(async () => {
        expect(await endpoints()).to.equal(2);
      }, 3000);
      await asks();
    });

    it(`DELTA upstream: it would say that they are gone, so they stay for idle_ttl (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      plane.set('eds', { a: '1', b: '1' });
      await using relay = await relayOf(plane, 'DELTA', workers);
      const endpoints = () => relay.metric('cache_resources', 'type="eds"');
      {
        using pool = new ClientPool(relay.xds, 1);
        const client = pool.open('delta');
        client.subscribe('cds');
        client.subscribe('eds', ['a', 'b']);
        await client.gets('cds', { a: '1' });
        await client.gets('eds', { a: '1', b: '1' });
      }
      await eventually(async () => expect(await clientsOf(relay)).to.have.length(0));
      await always(async () => {
        expect(await endpoints()).to.equal(2);
      }, 3000);
    });
  }
});
