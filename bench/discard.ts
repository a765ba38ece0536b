// The floor of load reports: node:http2 alone, with the settings of the relay. It asks each stream for the load of all
// clusters, and drops what it is told. Run by bench/subjects.go.
import { createServer } from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import { LoadStatsResponseSchema } from '../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { frameOf } from '../src/wire/grpc-frames.ts';
import { connectionWindow, sessionOptions } from '../src/wire/http2-settings.ts';

const asked = frameOf(
  toBinary(LoadStatsResponseSchema, create(LoadStatsResponseSchema, { sendAllClusters: true })),
);
const server = createServer(sessionOptions);
server.on('session', (session) => session.setLocalWindowSize(connectionWindow));
server.on('stream', (stream) => {
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
  stream.on('error', () => undefined);
  stream.once('data', () => stream.write(asked));
  stream.resume();
});
server.listen(0, '127.0.0.1', () => {
  const bound = server.address();
  const port = typeof bound === 'object' ? bound?.port : undefined;
  process.stdout.write(`listening xds 127.0.0.1:${port}\n`);
});
