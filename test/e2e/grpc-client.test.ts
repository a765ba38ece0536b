import { cases } from '../support/cases.ts';
import { ControlPlane, controlPlaneBinary } from './support/controlplane.ts';
import { startGrpcBackend } from './support/grpc-backend.ts';
import { GrpcXdsClient } from './support/grpc-xds.ts';
import { RelayProcess, relayCommand, upstream } from './support/relay.ts';
import { grpcService as service } from './support/resources.ts';
import { need } from './support/skip.ts';

describe('a gRPC client (@grpc/grpc-js-xds) through the relay', () => {
  let binary: string;

  before(async function () {
    await need(this, relayCommand());
    binary = await need(this, controlPlaneBinary());
  });

  for (const protocol of cases('DELTA' as const, 'SOTW' as const)) {
    it(`finds its server, follows it, and outlives the control plane; upstream ${protocol}`, async () => {
      await using one = await startGrpcBackend('one');
      await using two = await startGrpcBackend('two');
      await using plane = await ControlPlane.start(binary, { cache: 'snapshot' });
      await using relay = await RelayProcess.start({ upstreams: [upstream(plane.address, protocol)] });
      await plane.set(service('shop', one.port));
      await using client = new GrpcXdsClient({ xds: relay.xds });
      await client.answers('shop', 'one');
      await plane.set(service('shop', two.port));
      await client.answers('shop', 'two');
      await plane[Symbol.asyncDispose]();
      await client.answers('shop', 'two');
      await using second = new GrpcXdsClient({ xds: relay.xds });
      await second.answers('shop', 'two');
    });

    it(`a name that does not exist yet is found once it does, and holds up no other; upstream ${protocol}`, async () => {
      await using one = await startGrpcBackend('one');
      await using two = await startGrpcBackend('two');
      await using plane = await ControlPlane.start(binary, { cache: 'snapshot' });
      const ads = { resource_timeout: '1s' };
      await using relay = await RelayProcess.start({ upstreams: [upstream(plane.address, protocol, ads)] });
      await plane.set(service('shop', one.port));
      await using early = new GrpcXdsClient({ xds: relay.xds });
      await using client = new GrpcXdsClient({ xds: relay.xds });
      void early.call('office');
      await client.answers('shop', 'one');
      await plane.set([...service('shop', one.port), ...service('office', two.port)]);
      await early.answers('office', 'two');
    });
  }
});
