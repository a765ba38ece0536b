import { join } from 'node:path';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { eventually } from './eventually.ts';
import { Process } from './process.ts';

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

/** A gRPC client in a process of its own, whose xDS server is the relay (or a control plane). */
export class GrpcXdsClient implements AsyncDisposable {
  readonly #process: Process;
  #calls = 0;

  constructor(xds: string, target: string, metadata: object = {}) {
    const bootstrap = {
      xds_servers: [{ server_uri: xds, channel_creds: [{ type: 'insecure' }], server_features: ['xds_v3'] }],
      node: { id: 'grpc-client', cluster: 'test', metadata, locality: {} },
    };
    this.#process = new Process({
      command: process.execPath,
      args: [join(import.meta.dirname, 'grpc-xds-client.ts'), target],
      env: { GRPC_XDS_BOOTSTRAP_CONFIG: JSON.stringify(bootstrap) },
    });
  }

  get output(): string {
    return this.#process.output;
  }

  /** One call's line: `answer NAME` or `error REASON`. */
  async call(): Promise<string> {
    this.#calls += 1;
    const wanted = this.#calls;
    this.#process.write('call');
    return eventually(() => {
      const line = this.#process.lines.filter((line) => /^(answer|error) /.test(line))[wanted - 1];
      if (line === undefined) throw new Error(`no answer yet:\n${this.output}`);
      return line;
    });
  }

  /** Calls until the backend of this name answers. */
  async answers(name: string, timeout?: number): Promise<void> {
    await eventually(
      async () => {
        const line = await this.call();
        if (line !== `answer ${name}`) throw new Error(`the gRPC client got ${line}`);
      },
      timeout === undefined ? {} : { timeout },
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop('SIGKILL');
  }
}
