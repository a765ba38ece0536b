import {
  type ChannelCredentials,
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  credentials,
  Metadata,
  type StatusObject,
} from '@grpc/grpc-js';

export type RawCall = ClientDuplexStream<Buffer, Buffer>;

export function rawClient(
  address: string,
  secure: ChannelCredentials = credentials.createInsecure(),
  options: ChannelOptions = {},
): Client {
  return new Client(address, secure, {
    'grpc.enable_retries': 0,
    'grpc.use_local_subchannel_pool': 1,
    ...options,
  });
}

export function openCall(client: Client, path: string, metadata = new Metadata()): RawCall {
  const identity = (bytes: Buffer): Buffer => bytes;
  const call = client.makeBidiStreamRequest(path, identity, identity, metadata);
  call.on('error', () => undefined);
  return call;
}

export function statusOf(call: RawCall): Promise<StatusObject> {
  return new Promise((resolve) => call.once('status', resolve));
}

export function nextMessage(call: RawCall): Promise<Buffer> {
  return new Promise((resolve) => call.once('data', resolve));
}
