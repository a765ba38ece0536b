import { readFileSync, writeFileSync } from 'node:fs';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { isBusy } from '../support/busy.ts';
import { slower } from '../support/cpu.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RawConnection } from './support/raw-http2.ts';
import { RelayProcess } from './support/relay.ts';

const MB = 1 << 20;
const admin = 'distributary.admin.v1.AdminService';
const csds = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
/** What the bound of 5 ms leaves for a row, for garbage collection and for a machine that does something else too. */
const longestTurnMs = (): number => (isBusy() ? 80 : 40);
const callsAtOnce = 40;

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

/** Opens so many streams, which stay as long as the stack. */
async function open(relay: RelayProcess, streams: number): Promise<DisposableStack> {
  const connections = new DisposableStack();
  for (let index = 0; index < streams; ) {
    const from = connections.use(new RawConnection(relay.xds));
    await from.ready();
    for (let own = 0; own < 100; own++, index++) {
      from.call(`/${ADS_SERVICE}/DeltaAggregatedResources`).stream.write(request(index));
    }
  }
  await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(streams));
  return connections;
}

const residentOf = (pids: readonly number[], field: 'VmRSS' | 'VmHWM'): number =>
  pids.reduce((sum, pid) => {
    const [, kilobytes = ''] =
      new RegExp(`^${field}:\\s*(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return sum + Number(kilobytes) * 1024;
  }, 0);

for (const workers of [0, 2]) {
  describe(`lists of the admin listener, workers: ${workers}`, () => {
    const streams = 3000;
    let stack: AsyncDisposableStack;
    let relay: RelayProcess;

    before(async () => {
      stack = new AsyncDisposableStack();
      const files = stack.use(new ResourceFiles());
      files.write('cds', new Map([['shop', '0']]));
      // V8 collects memory outside of its heap each time that it has grown by 64 MB, so garbage is little of what is measured.
      const flags = ['--max-old-space-size=1024'];
      relay = stack.use(await RelayProcess.startProbed({ upstreams: [files.upstream], workers }, flags));
      stack.use(await open(relay, streams));
    });
    after(() => stack.disposeAsync());

    for (const limit of [0, streams]) {
      it(`have 8 MiB at most, and each client once over all their pages, limit: ${limit}`, async () => {
        const seen = new Set<string>();
        let [offset, pages] = [0, 0];
        do {
          const { body } = await relay.rpc(`${admin}/ListClients`, {
            offset,
            limit: limit === 0 ? 0 : limit - offset,
          });
          expect(body.length).to.be.at.most(8 * MB);
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
    }

    const calls: ReadonlyMap<string, readonly [path: string, status: number]> = new Map([
      ['ListClients', [`${admin}/ListClients`, 200]],
      ['CSDS, which says that it is too large', [csds, 429]],
      ['ListClasses', [`${admin}/ListClasses`, 200]],
      ['Wait', [`${admin}/Wait`, 200]],
    ]);
    for (const [name, [path, status]] of calls) {
      // Whoever comes last waits for all others.
      const ask = async () => {
        const headers = { 'content-type': 'application/json' };
        const response = await fetch(`http://${relay.admin}/${path}`, {
          method: 'POST',
          headers,
          body: '{}',
        });
        return { status: response.status, bytes: (await response.arrayBuffer()).byteLength };
      };
      it(`${callsAtOnce} at once neither hold up the loop nor fill the memory: ${name}`, async () => {
        const pids = await relay.pids();
        expect(pids).to.have.lengthOf(1 + workers);
        await ask(); // compiles it
        await relay.blocked(pids);
        const before = residentOf(pids, 'VmRSS');
        // Their highest is of now (Linux).
        for (const pid of pids) writeFileSync(`/proc/${pid}/clear_refs`, '5');
        const answers = await Promise.all(Array.from({ length: callsAtOnce }, ask));
        const { cpu } = await relay.blocked(pids);
        const grown = residentOf(pids, 'VmHWM') - before;
        for (const answer of answers) {
          expect(answer.status).to.equal(status);
          expect(answer.bytes).to.be.at.most(8 * MB);
        }
        expect(cpu / slower()).to.be.below(longestTurnMs());
        // All answers at once would be 250 to 320 MiB more.
        expect(grown).to.be.below((128 + workers * 64) * MB);
      });
    }
  });
}
