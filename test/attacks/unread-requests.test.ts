import { connect, constants } from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { type } from '../support/in-memory-relay.ts';
import { rawCall } from './support/calls.ts';

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
