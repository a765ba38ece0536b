import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RawConnection, type RawStream } from './support/raw-http2.ts';
import { RelayProcess } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const MB = 1 << 20;
/** Of the whole 127.0.0.0/8, on Linux alone. */
const attacker = process.platform === 'linux' ? '127.0.0.2' : undefined;

/** A delta request for names that nobody else asks for. */
const requestFor = (stream: number, names: number): Buffer =>
  frameOf(
    toBinary(
      DeltaDiscoveryRequestSchema,
      create(DeltaDiscoveryRequestSchema, {
        node: { id: 'hungry' },
        typeUrl: typeOf('eds'),
        resourceNamesSubscribe: Array.from({ length: names }, (_, name) => `${stream}-${name}`),
      }),
    ),
  );

/** A delta request for wildcards with parameters that nobody else has. */
const wildcardsFor = (stream: number): Buffer =>
  frameOf(
    toBinary(
      DeltaDiscoveryRequestSchema,
      create(DeltaDiscoveryRequestSchema, {
        node: { id: 'hungry' },
        typeUrl: typeOf('cds'),
        resourceLocatorsSubscribe: Array.from({ length: 16 }, (_, set) => ({
          name: '*',
          dynamicParameters: { invented: `${stream}-${set}` },
        })),
      }),
    ),
  );

/** On so many streams. Which of them have ended. */
async function asks(
  from: RawConnection,
  count: number,
  requestOf: (stream: number) => Buffer,
): Promise<() => readonly RawStream[]> {
  await from.ready();
  const streams = Array.from({ length: count }, (_, index) => {
    const stream = from.call(`/${ADS_SERVICE}/DeltaAggregatedResources`);
    stream.stream.write(requestOf(index));
    return stream;
  });
  return () => streams.filter(({ status }) => status !== undefined);
}

describe('the account of a peer, on a running relay', () => {
  let files: ResourceFiles;

  before(() => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
  });

  after(() => files?.[Symbol.dispose]());

  it('what one peer subscribes to alone is bounded over all its streams; others are served', async function () {
    if (attacker === undefined) this.skip();
    await using relay = await RelayProcess.startMeasurable({
      upstreams: [files.upstream],
      limits: { max_held_bytes_per_peer: 16 * MB },
    });
    await using good = new XdsClient(relay.xds, 'delta');
    good.subscribe('cds');
    await good.gets('cds');
    const before = await relay.memory();
    using from = new RawConnection(relay.xds, undefined, attacker);
    const refused = await asks(from, 30, (stream) => requestFor(stream, 1000));
    // 1,000 names are 2.6 MB: six streams have room.
    await eventually(() => expect(refused().length).to.be.at.least(22));
    expect(refused().length).to.be.below(30);
    for (const { status } of refused()) {
      expect(status?.code).to.equal(Code.RESOURCE_EXHAUSTED);
      expect(status?.details).to.match(/^address 127\.0\.0\.2 .*limits\.max_held_bytes_per_peer/);
    }
    const { used } = await relay.memory();
    expect((used - before.used) / MB).to.be.below(64);
    const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
    expect(body).to.include('"address 127.0.0.2"');
    // Some already while their request arrives in parts.
    const [held, halfSent] = [
      await relay.metric('downstream_rejected_total', 'held_bytes'),
      await relay.metric('downstream_rejected_total', 'half_sent'),
    ];
    expect(held + halfSent).to.be.at.least(22);
    await using another = new XdsClient(relay.xds, 'delta');
    another.subscribe('eds', ['of-another']);
    another.subscribe('cds');
    await another.gets('cds');
    expect(good.status).to.equal(undefined);
    from[Symbol.dispose]();
    await eventually(async () => expect(await relay.metric('peer_held_bytes')).to.be.below(MB));
  });

  it('so is what wildcards with invented parameters show', async function () {
    if (attacker === undefined) this.skip();
    using many = new ResourceFiles();
    many.write('cds', new Map(Array.from({ length: 1000 }, (_, index) => [`c${index}`, '0'])));
    await using relay = await RelayProcess.startMeasurable({
      upstreams: [many.upstream],
      limits: { max_held_bytes_per_peer: 16 * MB },
    });
    await using good = new XdsClient(relay.xds, 'delta');
    good.subscribe('cds');
    await good.gets('cds');
    const before = await relay.memory();
    using from = new RawConnection(relay.xds, undefined, attacker);
    const refused = await asks(from, 20, wildcardsFor);
    // 16 times 1,000 resources are 4.6 MB: three streams have room.
    await eventually(() => expect(refused().length).to.be.at.least(16));
    for (const { status } of refused())
      expect(status?.details).to.match(/^address 127\.0\.0\.2 .*limits\.max_held_bytes_per_peer/);
    const { used } = await relay.memory();
    expect((used - before.used) / MB).to.be.below(64);
    expect(good.status).to.equal(undefined);
  });
});
