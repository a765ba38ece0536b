import { Server, ServerCredentials } from '@grpc/grpc-js';

/** The one method of the gRPC backends: it answers with the backend's name, not even wrapped in a message. */
export const WHO = '/test.Backend/Who';

export interface GrpcBackend extends AsyncDisposable {
  readonly port: number;
}

export async function startGrpcBackend(name: string): Promise<GrpcBackend> {
  const bytes = (value: Buffer) => value;
  const who = {
    path: WHO,
    requestStream: false,
    responseStream: false,
    requestSerialize: bytes,
    requestDeserialize: bytes,
    responseSerialize: bytes,
    responseDeserialize: bytes,
  } as const;
  const server = new Server();
  server.addService(
    { who },
    { who: (_: unknown, reply: (error: null, value: Buffer) => void) => reply(null, Buffer.from(name)) },
  );
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => {
    if (error === null) resolve(port);
    else reject(error);
  });
  const port = await promise;
  return {
    port,
    async [Symbol.asyncDispose]() {
      server.forceShutdown();
    },
  };
}
