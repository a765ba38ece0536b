import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { cases } from '../support/cases.ts';
import { openCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { send } from './support/http.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';

const ads = `/${ADS_SERVICE}`;
const cds = '/envoy.service.cluster.v3.ClusterDiscoveryService';
const doors = [
  [`${ads}/StreamAggregatedResources`, DiscoveryRequestSchema],
  [`${ads}/DeltaAggregatedResources`, DeltaDiscoveryRequestSchema],
  [`${cds}/StreamClusters`, DiscoveryRequestSchema],
  [`${cds}/DeltaClusters`, DeltaDiscoveryRequestSchema],
  [`${cds}/FetchClusters`, DiscoveryRequestSchema],
] as const;

/** Longer by one byte; of two-byte characters too. */
const tooLong = [
  ['id', { id: 'n'.repeat(1025) }, 'node.id has 1025 bytes: at most 1024 are accepted'],
  [
    'cluster',
    { id: 'n', cluster: 'é'.repeat(513) },
    'node.cluster has 1026 bytes: at most 1024 are accepted',
  ],
] as const;
const longest = { id: 'n'.repeat(1024), cluster: 'é'.repeat(512) };

for (const workers of cases(0, 1))
  describe(`the length of a node's id and cluster, ${workers} workers (§3.1a)`, () => {
    let files: ResourceFiles;
    let relay: RelayProcess;

    before(async () => {
      files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      relay = await RelayProcess.start({ upstreams: [files.upstream], rest: {}, workers });
    });

    after(async () => {
      await relay?.[Symbol.asyncDispose]();
      files?.[Symbol.dispose]();
    });

    async function ask(
      [path, schema]: (typeof doors)[number],
      node: object,
    ): Promise<{ readonly answered: boolean; readonly code: number; readonly details: string }> {
      const client = rawClient(relay.xds);
      try {
        const call = openCall(client, path);
        let answered = false;
        call.on('data', () => {
          answered = true;
          call.end();
        });
        const request = { node, typeUrl: typeOf('cds') };
        call.write(
          Buffer.from(
            schema === DiscoveryRequestSchema
              ? toBinary(schema, create(schema, request))
              : toBinary(DeltaDiscoveryRequestSchema, create(DeltaDiscoveryRequestSchema, request)),
          ),
        );
        if (path.includes('/Fetch')) call.end();
        const { code, details } = await statusOf(call);
        return { answered, code, details };
      } finally {
        client.close();
      }
    }

    for (const door of doors) {
      for (const [what, node, message] of tooLong)
        it(`${door[0]}: a longer ${what} is INVALID_ARGUMENT`, async () => {
          const { answered, code, details } = await ask(door, node);
          expect({ answered, code }).to.deep.equal({ answered: false, code: Code.INVALID_ARGUMENT });
          expect(details).to.include(message);
        });

      it(`${door[0]}: 1 KB of each is accepted`, async () => {
        expect(await ask(door, longest)).to.include({ answered: true, code: Code.OK });
      });
    }

    for (const [what, node, message] of tooLong)
      it(`REST: a longer ${what} is 400`, async () => {
        const { status, body } = await poll(node);
        expect(status, body).to.equal(400);
        expect(body).to.include(message);
      });

    it('REST: 1 KB of each is accepted', async () => {
      await eventually(async () => expect((await poll(longest)).status).to.equal(200));
    });

    function poll(node: object) {
      const url = `http://${relay.rest}/v3/discovery:clusters`;
      return send('POST', url, JSON.stringify({ node }), 'application/json');
    }
  });

describe('rollout.json', () => {
  it('stays small, whatever canaries call themselves', async () => {
    using directory = temporaryDirectory();
    const path = join(directory.path, 'cache');
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      parameters: [{ key: 'name', from: 'node.user_agent_name' }],
      rollout: { canary: { percent: 100 }, mode: 'MANUAL' },
      cache: { persistence: { path } },
    });
    using pool = new ClientPool(relay.xds, 1);
    const clients = Array.from({ length: 30 }, (_, index) => {
      const client = pool.open('delta', `${index}`.padStart(1024, 'n'), `${index}`.padStart(4000, 'u'));
      client.subscribe('cds');
      return client;
    });
    for (const client of clients) await client.gets('cds', { a: '1' });
    plane.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
    await eventually(() => {
      const text = readFileSync(join(path, 'rollout.json'), 'utf8');
      expect(text).to.include('29'.padStart(1024, 'n'));
      expect(text.length).to.be.below(30 * 1200);
    });
  });
});
