import { type Metadata, Server, ServerCredentials, type ServiceError } from '@grpc/grpc-js';

/** The one method of the gRPC backends: it answers with the backend's name, not even wrapped in a message. */
export const WHO = '/test.Backend/Who';

export interface GrpcBackend extends AsyncDisposable {
  readonly port: number;
}

/** What becomes of a call: an error, if it fails, and its trailers. */
interface Outcome {
  readonly error?: Partial<ServiceError>;
  readonly trailers?: Metadata;
}

type Reply = (error: Partial<ServiceError> | null, value?: Buffer, trailers?: Metadata) => void;

/** `outcome` is asked for each call, with its number; undefined: every call succeeds. */
export async function startGrpcBackend(
  name: string,
  outcome: (call: number) => Outcome = () => ({}),
): Promise<GrpcBackend> {
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
  let calls = 0;
  const answer = (_: unknown, reply: Reply): void => {
    const { error = null, trailers } = outcome(calls++);
    reply(error, Buffer.from(name), trailers);
  };
  server.addService({ who }, { who: answer });
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
