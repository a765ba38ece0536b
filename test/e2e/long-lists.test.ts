import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RawConnection } from './support/raw-http2.ts';
import { RelayProcess } from './support/relay.ts';

const MB = 1 << 20;

/** In JSON each character of the id takes six. */
const request = (index: number): Buffer =>
  frameOf(
    toBinary(
      DeltaDiscoveryRequestSchema,
      create(DeltaDiscoveryRequestSchema, {
        node: { id: `${index}`.padEnd(1000, '\u0001') },
        typeUrl: typeOf('cds'),
      }),
    ),
  );

for (const workers of [0, 2]) {
  describe(`lists of the admin listener, workers: ${workers}`, function () {
    this.timeout(60_000);
    const streams = 3000;

    it('have 8 MiB at most, and each client once over all their pages', async () => {
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '0']]));
      await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers });
      using connections = new DisposableStack();
      for (let index = 0; index < streams; ) {
        const from = connections.use(new RawConnection(relay.xds));
        await from.ready();
        for (let own = 0; own < 100; own++, index++) {
          from.call(`/${ADS_SERVICE}/DeltaAggregatedResources`).stream.write(request(index));
        }
      }
      await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(streams), {
        timeout: 30_000,
      });
      const seen = new Set<string>();
      let [offset, pages] = [0, 0];
      do {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/ListClients', { offset });
        expect(body.length).to.be.below(9 * MB);
        const page = JSON.parse(body) as {
          readonly clients: readonly { readonly node: { readonly id: string } }[];
          readonly next_offset: number;
          readonly matching: number;
        };
        expect(page.matching).to.equal(streams);
        for (const { node } of page.clients) seen.add(node.id);
        offset = page.next_offset;
        pages++;
      } while (offset > 0);
      expect([seen.size, pages]).to.deep.equal([streams, 3]);
    });
  });
}
