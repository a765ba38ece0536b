import { create, fromBinary, fromJson, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { Client, credentials, type ServiceError, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  DiscoveryRequestSchema,
  type DiscoveryResponse,
  DiscoveryResponseSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE, knownTypes } from '../../src/model/types.ts';
import { nameOf } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { typeOf } from '../upstream/ads/responses.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess, upstream } from './support/relay.ts';

const fetched = knownTypes.filter(({ fetchMethod }) => fetchMethod !== undefined);
const node = { id: 'fetcher' };
const endpointsPath = '/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints';

function call(client: Client, path: string, request: JsonObject): Promise<DiscoveryResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<DiscoveryResponse>();
  client.makeUnaryRequest(
    path,
    (json: JsonObject) =>
      Buffer.from(toBinary(DiscoveryRequestSchema, fromJson(DiscoveryRequestSchema, json))),
    (bytes) => fromBinary(DiscoveryResponseSchema, bytes),
    request,
    (error, response = create(DiscoveryResponseSchema)) => {
      if (error === null) resolve(response);
      else reject(error);
    },
  );
  return promise;
}

const refusal = (failed: Promise<unknown>): Promise<ServiceError> =>
  failed.then(
    () => {
      throw new Error('it was answered');
    },
    (error: ServiceError) => error,
  );

describe('the unary Fetch over gRPC', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let client: Client;

  before(async () => {
    files = new ResourceFiles();
    for (const { short } of fetched) files.write(short, new Map([['shop', '1']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream] });
    client = new Client(relay.xds, credentials.createInsecure());
    // Fetch waits for a second where no control plane has a resource_timeout: a busy machine may need more for its files.
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
  });

  after(async () => {
    client?.close();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('clients lists who fetches, and whether it has accepted what it got', async () => {
    const own = { id: 'listed-fetcher' };
    const { versionInfo } = await call(client, endpointsPath, { node: own, resourceNames: ['shop'] });
    const state = async () => {
      const found = (await relay.clients()).find((one) => one.node.id === own.id);
      const [type] = found?.types ?? [];
      return [found?.transport, type?.type, type?.state, type?.version];
    };
    expect(await state()).to.deep.equal(['fetch', 'eds', 'STALE', versionInfo]);
    await call(client, endpointsPath, { node: own, resourceNames: ['shop'], versionInfo });
    expect(await state()).to.deep.equal(['fetch', 'eds', 'SYNCED', versionInfo]);
  });

  for (const { short, service, fetchMethod, url } of fetched) {
    it(`§7.5 ${fetchMethod} of ${short}: one response`, async () => {
      const response = await call(client, `/${service}/${fetchMethod}`, { node, resource_names: ['shop'] });
      expect([response.typeUrl, response.resources.map(nameOf)]).to.deep.equal([url, ['shop']]);
      const again = { node, resource_names: ['shop'], version_info: response.versionInfo };
      expect((await call(client, `/${service}/${fetchMethod}`, again)).resources).to.have.length(1);
    });
  }

  it('§7.5 what does not exist is left out', async () => {
    const response = await call(client, endpointsPath, { node, resource_names: ['shop', 'none'] });
    expect(response.resources.map(nameOf)).to.deep.equal(['shop']);
  });

  it('ADS has none', async () => {
    const { code } = await refusal(call(client, `/${ADS_SERVICE}/FetchAggregatedResources`, { node }));
    expect(code).to.equal(status.UNIMPLEMENTED);
  });

  it('refusals are those of streams', async () => {
    const without = await refusal(call(client, endpointsPath, { resource_names: ['shop'] }));
    expect([without.code, without.details]).to.deep.equal([
      status.INVALID_ARGUMENT,
      'the request must carry node',
    ]);
    const wrong = await refusal(call(client, endpointsPath, { node, type_url: 'type.googleapis.com/a.B' }));
    expect(wrong.code).to.equal(status.INVALID_ARGUMENT);
  });

  it('§7.5 what the control plane does not answer is waited for no longer than resource_timeout, and is then absent', async () => {
    const plane = await new ControlPlane().listen();
    const silent = await RelayProcess.start({
      upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA', { resource_timeout: '1500ms' })],
    });
    const other = new Client(silent.xds, credentials.createInsecure());
    try {
      const paths = [endpointsPath, '/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters'];
      const asked = paths.map((path) => call(other, path, { node, resource_names: ['silence'] }));
      for (const { resources } of await Promise.all(asked)) expect(resources).to.deep.equal([]);
    } finally {
      other.close();
      await silent.stop();
      plane.kill();
    }
  });

  it('§7.5 over SotW, where a name is absent a fifteenth of resource_timeout later, it is waited for', async () => {
    const plane = await new ControlPlane().listen();
    plane.answer = (stream, { typeUrl: type, responseNonce }) => {
      if (type === typeOf('eds') && responseNonce === '') stream.send(typeOf('eds'), '1', 'shop:it@1');
    };
    const silent = await RelayProcess.start({
      // A fifteenth of it is more than the quarter of a second.
      upstreams: [upstream(`127.0.0.1:${plane.port}`, 'SOTW', { resource_timeout: '4s' })],
    });
    const other = new Client(silent.xds, credentials.createInsecure());
    try {
      const path = '/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters';
      const [endpoints, clusters] = await Promise.all([
        call(other, endpointsPath, { node, resource_names: ['shop'] }),
        call(other, path, { node, resource_names: ['silence'] }),
      ]);
      expect([endpoints.resources.length, clusters.resources.length]).to.deep.equal([1, 0]);
    } finally {
      other.close();
      await silent.stop();
      plane.kill();
    }
  });
});
