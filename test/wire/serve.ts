import type { ConnectionBounds } from '../../src/wire/client-connections.ts';
import { type GrpcServer, type GrpcServerOptions, listenGrpc } from '../../src/wire/http2-server.ts';
import type { ServerStream } from '../../src/wire/server-stream.ts';

const open: GrpcServer[] = [];

/** Listens on a free port; `closeServers` ends it. */
export async function serve(options: Partial<GrpcServerOptions> = {}): Promise<GrpcServer> {
  const listening = await listenGrpc({
    address: '127.0.0.1:0',
    maxRequestBytes: 4 << 20,
    accept: () => echo,
    ...options,
  });
  if (!listening.ok) throw new Error(listening.error);
  open.push(listening.value);
  return listening.value;
}

export async function closeServers(): Promise<void> {
  await Promise.all(open.splice(0).map((server) => server.drain(0)));
}

/** A peer has too many connections with its first one. */
export const full: ConnectionBounds = {
  admits: () => true,
  opened: () => undefined,
  closed: () => undefined,
  joined: () => 'the peer has too many connections',
  left: () => undefined,
};

/** Sends each message back; ends when the client does. */
export function echo(stream: ServerStream): void {
  stream.handle({
    message(bytes) {
      const frame = Buffer.allocUnsafe(5 + bytes.length);
      frame[0] = 0;
      frame.writeUInt32BE(bytes.length, 1);
      bytes.copy(frame, 5);
      stream.write(frame);
    },
    ended: () => stream.end({ code: 0, message: '' }),
    drained: () => undefined,
    closed: () => undefined,
  });
}
