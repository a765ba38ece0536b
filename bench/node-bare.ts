/**
 * A bare node:http2 server, the subject `node-bare`: what node costs a relay that has none of our duties. It takes framed
 * responses from `floor`, writes each to all streams as it is, and the last one to a stream whose first request has come.
 * It reads no request. TLS, sessions and the backlog are set as the product sets them.
 *
 *   node node-bare.ts --upstream HOST:PORT [--cert FILE --key FILE [--client-ca FILE]]
 */
import { readFileSync } from 'node:fs';
import {
  connect,
  createSecureServer,
  createServer,
  type Http2Server,
  type ServerHttp2Stream,
} from 'node:http2';
import { parseArgs } from 'node:util';
import { backlog, connectionWindow, handshakeTimeoutMs, sessionOptions } from '../src/wire/http2-settings.ts';
import { serverContextOptions } from '../src/wire/tls-material.ts';

const { upstream = '', ...files } = parseArgs({
  options: {
    upstream: { type: 'string' },
    cert: { type: 'string' },
    key: { type: 'string' },
    'client-ca': { type: 'string' },
  },
}).values;

/** A list, because Node copies an object for each response. */
const responseHeaders: readonly string[] = [':status', '200', 'content-type', 'application/grpc'];
const respondOptions = { endStream: false, sendDate: false } as const;
const prefix = 5; // of a gRPC message: a flag and the length

/** Calls back with each gRPC message, prefix included. */
function follow(received: (message: Buffer) => void): void {
  const windows = { settings: { initialWindowSize: 1 << 30 } }; // floor asks no window
  const stream = connect(`http://${upstream}`, windows).request({ ':method': 'POST', ':path': '/' });
  let bytes = Buffer.alloc(0);
  stream.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= prefix && bytes.length >= prefix + bytes.readUInt32BE(1)) {
      const end = prefix + bytes.readUInt32BE(1);
      received(Buffer.from(bytes.subarray(0, end)));
      bytes = bytes.subarray(end);
    }
  });
  stream.on('close', () => process.exit(1));
  stream.write('type.googleapis.com/'); // all that floor looks for
}

function open(): Http2Server {
  if (files.cert === undefined || files.key === undefined) return createServer(sessionOptions);
  const ca = files['client-ca'];
  return createSecureServer({
    ...sessionOptions,
    ...serverContextOptions({
      certificate: readFileSync(files.cert),
      privateKey: readFileSync(files.key),
      ...(ca === undefined ? {} : { ca: readFileSync(ca) }),
    }),
    handshakeTimeout: handshakeTimeoutMs,
    requestCert: ca !== undefined,
    rejectUnauthorized: ca !== undefined,
  });
}

const streams = new Set<ServerHttp2Stream>();
let current: Buffer | undefined;

function serve(): void {
  const server = open();
  server.on('session', (session) => session.setLocalWindowSize(connectionWindow));
  server.on('stream', (stream: ServerHttp2Stream) => {
    stream.on('error', () => undefined);
    stream.once('data', () => {
      stream.respond(responseHeaders, respondOptions);
      stream.write(current);
      streams.add(stream);
    });
    stream.on('close', () => streams.delete(stream));
  });
  server.listen({ host: '127.0.0.1', port: 0, backlog }, () => {
    const address = server.address();
    if (typeof address === 'object') console.log(`listening xds 127.0.0.1:${address?.port}`);
  });
}

follow((message) => {
  const isFirst = current === undefined;
  current = message;
  if (isFirst) serve();
  else for (const stream of streams) stream.write(message);
});
