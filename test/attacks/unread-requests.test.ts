import { connect, constants } from 'node:http2';
import { connect as tcpConnect } from 'node:net';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { type } from '../support/in-memory-relay.ts';
import { rawCall } from './support/calls.ts';
import { block, callFields, data, headers, PREFACE, settings } from './support/frames.ts';
import { RawConnection } from './support/raw-connection.ts';

const MB = 1 << 20;
const path = '/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters';

const request = (subscribe: readonly string[], unsubscribe: readonly string[]): Buffer =>
  frameOf(
    toBinary(
      DeltaDiscoveryRequestSchema,
      create(DeltaDiscoveryRequestSchema, {
        node: { id: 'n', cluster: 'c' },
        typeUrl: type('cds'),
        resourceNamesSubscribe: [...subscribe],
        resourceNamesUnsubscribe: [...unsubscribe],
      }),
    ),
  );

/** 200 KB of changes, one of which is read in a second. */
const changes = Buffer.concat(
  Array.from({ length: 3000 }, () => [request(['a'], []), request([], ['a'])]).flat(),
);

/** Less than a frame may have. */
const some = changes.subarray(0, 10_000);

describe('what streams send that are not read', () => {
  it('counts as held for its peer: past limits.max_held_bytes_per_peer streams end with a reason', async () => {
    await using stack = new AsyncDisposableStack();
    const files = stack.use(new ResourceFiles());
    files.write('cds', new Map([['a', 'x']]));
    const relay = stack.use(
      await RelayProcess.start({
        upstreams: [files.upstream],
        limits: { max_held_bytes_per_peer: 8 * MB, subscription_changes_per_second: 1 },
      }),
    );
    const held = (): Promise<number> => relay.metric('peer_held_bytes');
    const refused = (): Promise<number> => relay.metric('downstream_rejected_total', 'reason="held_bytes"');
    // A connection has a window of 1 MiB for all its streams.
    const sessions = Array.from({ length: 24 }, () => {
      const session = connect(`http://${relay.xds}`);
      session.on('error', () => undefined);
      stack.defer(() => session.destroy());
      return session;
    });
    for (const session of sessions)
      for (let stream = 0; stream < 5; stream++) rawCall(session, path).stream.write(changes);

    await eventually(async () => expect(await refused()).to.be.above(10));
    await eventually(async () => expect(await held()).to.be.within(4 * MB, 8 * MB));

    for (const session of sessions) session.destroy();
    await eventually(async () => expect(await held()).to.be.below(MB));
  });

  it('counts with what a piece of one byte takes', async () => {
    const most = 16 * MB;
    await using stack = new AsyncDisposableStack();
    const files = stack.use(new ResourceFiles());
    files.write('cds', new Map([['a', 'x']]));
    const relay = stack.use(
      await RelayProcess.startMeasurable({
        upstreams: [files.upstream],
        limits: { max_held_bytes_per_peer: most, subscription_changes_per_second: 1 },
      }),
    );
    const before = await relay.memory();
    const [host = '', port = ''] = relay.xds.split(':');
    const streams = [1, 3, 5, 7];
    const connections = Array.from({ length: 3 }, () => {
      const socket = tcpConnect({ host, port: Number(port) });
      socket.on('error', () => undefined);
      return stack.use(new RawConnection(socket));
    });
    for (const connection of connections) {
      await connection.send(PREFACE, settings());
      for (const stream of streams)
        await connection.send(headers(stream, block(callFields(path))), data(stream, some));
      // 600,000 in all, which take 72 MB.
      for (const stream of streams)
        for (let sent = 0; sent < 50; sent++)
          await connection.send(
            Buffer.concat(Array.from({ length: 1000 }, () => data(stream, Buffer.of(0)))),
          );
    }
    const refused = (): Promise<number> => relay.metric('downstream_rejected_total', 'reason="held_bytes"');
    await eventually(async () => expect(await refused()).to.be.above(5));
    expect(await relay.metric('peer_held_bytes')).to.be.below(most);
    const { used } = await relay.memory();
    if (process.env['FIGURES'] === '1') process.stdout.write(`${(used - before.used) / MB} MB\n`);
    expect((used - before.used) / MB).to.be.below(40);
  });

  it('is dropped when its client resets the stream or goes, however much is left', async () => {
    await using stack = new AsyncDisposableStack();
    const files = stack.use(new ResourceFiles());
    files.write('cds', new Map([['a', 'x']]));
    const relay = stack.use(
      await RelayProcess.start({
        upstreams: [files.upstream],
        limits: { subscription_changes_per_second: 1 },
      }),
    );
    const streams = async (): Promise<number> => (await relay.metric('downstream_streams')) || 0;
    const session = connect(`http://${relay.xds}`);
    stack.defer(() => session.destroy());
    const [reset, left] = [rawCall(session, path).stream, rawCall(session, path).stream];
    for (const stream of [reset, left]) {
      stream.on('error', () => undefined);
      stream.write(changes);
    }
    await eventually(async () => expect(await relay.metric('peer_held_bytes')).to.be.above(changes.length));

    reset.close(constants.NGHTTP2_CANCEL);
    await eventually(async () => expect(await streams()).to.equal(1));
    session.close();
    left.destroy();
    await eventually(async () => expect(await streams()).to.equal(0));
    expect(await relay.metric('peer_held_bytes')).to.equal(0);
  });
});
