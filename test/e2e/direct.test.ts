import { expect } from 'chai';
import { type Backend, startBackend } from './support/backend.ts';
import { ControlPlane, controlPlaneBinary, subscriptions } from './support/controlplane.ts';
import { Envoy, type Transport } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { startGrpcBackend } from './support/grpc-backend.ts';
import { GrpcXdsClient } from './support/grpc-xds.ts';
import {
  apiListener,
  CLUSTER,
  cluster,
  endpoints,
  routes,
  type Source,
  website,
} from './support/resources.ts';
import { need } from './support/skip.ts';

describe('the test environment, without the relay', () => {
  let envoy: string;
  let controlPlane: string;
  let one: Backend;
  let two: Backend;

  before(async function () {
    envoy = await need(this, envoyBinary());
    controlPlane = await need(this, controlPlaneBinary());
    one = await startBackend('one');
    two = await startBackend('two');
  });

  after(async () => {
    await one?.[Symbol.asyncDispose]();
    await two?.[Symbol.asyncDispose]();
  });

  const cases: readonly (readonly [Transport, Source, 'snapshot' | 'linear'])[] = [
    ['ads-sotw', 'ads', 'snapshot'],
    ['ads-delta', 'ads', 'linear'],
    ['grpc', 'grpc', 'linear'],
    ['delta-grpc', 'delta-grpc', 'snapshot'],
  ];
  for (const [transport, source, cache] of cases) {
    it(`go-control-plane (${cache}) configures Envoy over ${transport}`, async () => {
      await using plane = await ControlPlane.start(controlPlane, { cache });
      await plane.set(website(source, one.port));
      await using proxy = await Envoy.start(envoy, { xds: plane.address, transport });
      await proxy.answers('web', '/', 'one');
      await plane.set(website(source, two.port));
      await proxy.answers('web', '/', 'two');
      expect(subscriptions(await plane.stats())).to.include(`${CLUSTER} *`);
    });
  }

  it('go-control-plane configures a gRPC client', async () => {
    await using backend = await startGrpcBackend('grpc-one');
    await using plane = await ControlPlane.start(controlPlane, { cache: 'linear' });
    const { port } = backend;
    await plane.set([apiListener('api', 'r'), routes('r', { '': 'c' }), cluster('c'), endpoints('c', port)]);
    await using client = new GrpcXdsClient({ xds: plane.address });
    await client.answers('api', 'grpc-one');
  });
});
