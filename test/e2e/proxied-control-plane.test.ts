import { expect } from 'chai';
import { Code } from '../../src/wire/grpc-status.ts';
import { Envoy } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { endpointOf, readyOf } from './support/relay-state.ts';
import { customListener, httpOptions, socketAddress, staticCluster } from './support/resources.ts';
import { need } from './support/skip.ts';

const times = {
  backoff: { initial: '50ms', max: '200ms' },
  resource_timeout: '1s',
  failback_after: '300ms',
};

/** An Envoy that passes streams on to a control plane. */
function proxyOf(plane: ModelPlane): object {
  const route = { match: { prefix: '/' }, route: { cluster: 'plane', timeout: '0s' } };
  const { '@type': _type, ...listener } = customListener('proxy', {
    route_config: { name: 'r', virtual_hosts: [{ name: 'all', domains: ['*'], routes: [route] }] },
  });
  const port = Number(plane.address.slice(plane.address.lastIndexOf(':') + 1));
  return {
    node: { id: 'proxy', cluster: 'test' },
    admin: { address: socketAddress(0) },
    static_resources: {
      listeners: [listener],
      clusters: [staticCluster('plane', port, httpOptions({ http2_protocol_options: {} }))],
    },
  };
}

const addressOf = async (proxy: Envoy): Promise<string> => (await proxy.url('proxy')).replace('http://', '');

describe('§8.4 a control plane behind a proxy that stays up (real Envoy)', () => {
  let binary: string;

  before(async function () {
    binary = await need(this, envoyBinary());
  });

  it('goes: the next endpoint is used, and the first again when it is back', async () => {
    await using plane = await ModelPlane.start();
    await using other = await ModelPlane.start();
    plane.set('cds', { a: 'first' });
    other.set('cds', { a: 'second' });
    await using proxy = await Envoy.boot(binary, proxyOf(plane));
    const endpoints = [await addressOf(proxy), other.address];
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints, ...times } }],
    });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    await client.gets('cds', { a: 'first' });
    plane.kill();
    await client.gets('cds', { a: 'second' });
    expect(await endpointOf(relay)).to.equal(other.address);
    await plane.again();
    await client.gets('cds', { a: 'first' });
    expect(client.status).to.equal(undefined);
  });

  it('goes, and there is no other: the upstream is down, and clients that come for what is not cached hear it', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    plane.set('eds', { a: '1', b: '1' });
    await using proxy = await Envoy.boot(binary, proxyOf(plane));
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [await addressOf(proxy)], ...times } }],
    });
    using pool = new ClientPool(relay.xds);
    const client = pool.open('delta');
    client.subscribe('cds');
    client.subscribe('eds', ['a']);
    await client.gets('eds', { a: '1' });
    plane.kill();
    await eventually(async () => {
      const { status, stale } = await readyOf(relay);
      expect([status, stale]).to.deep.equal([200, true]);
    });
    await eventually(async () => {
      const late = pool.open('delta', 'late');
      late.subscribe('eds', ['b']);
      await eventually(() => expect(late.status?.code).to.equal(Code.UNAVAILABLE), { timeout: 3000 });
    });
    await plane.again();
    const late = pool.open('delta', 'later');
    await eventually(async () => expect((await readyOf(relay)).stale).to.equal(false));
    late.subscribe('eds', ['b']);
    await late.gets('eds', { b: '1' });
    expect(client.status).to.equal(undefined);
  });
});
