import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from './eventually.ts';
import { type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { Process, type Spawn } from './process.ts';

export interface GrpcXdsOptions {
  /** HOST:PORT or `unix:PATH` of its xDS server. */
  readonly xds: string;
  readonly id?: string;
  /** Its whole bootstrap, instead of one made of these. */
  readonly bootstrap?: object;
}

/** The client on grpc-js. */
export const grpcJsClient: Spawn = {
  command: process.execPath,
  args: ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'grpc-xds-client.ts')],
};

const bootstrapOf = (xds: string, id: string): object => ({
  xds_servers: [{ server_uri: xds, channel_creds: [{ type: 'insecure' }], server_features: ['xds_v3'] }],
  node: { id, cluster: 'test', locality: {} },
});

/**
 * A gRPC client in a process of its own, whose xDS server is the relay (or a control plane). There is one program for
 * each implementation of gRPC; all read and write the same lines (`grpc-xds-client.ts`).
 */
export class GrpcXdsClient implements AsyncDisposable {
  readonly #process: Process;
  readonly #files: TemporaryDirectory;
  #calls = 0;

  constructor(
    { xds, id = 'grpc-client', bootstrap = bootstrapOf(xds, id) }: GrpcXdsOptions,
    program: Spawn = grpcJsClient,
  ) {
    this.#files = temporaryDirectory();
    const path = join(this.#files.path, 'bootstrap.json');
    writeFileSync(path, JSON.stringify(bootstrap));
    this.#process = new Process({ ...program, env: { ...program.env, GRPC_XDS_BOOTSTRAP: path } });
  }

  get output(): string {
    return this.#process.output;
  }

  async version(): Promise<string> {
    const [, version = ''] = await this.#process.line(/^version (\S+)/);
    return version;
  }

  /** A call to `xds:///NAME`, with a deadline in seconds: `answer NAME`, or `error CODE MESSAGE`. */
  async call(name: string, deadline: number = 5): Promise<string> {
    this.#calls += 1;
    const id = this.#calls;
    this.#process.write(`${id} xds:///${name} ${deadline}`);
    // Not before the process, which may be starting, has missed the deadline itself.
    const [, outcome = ''] = await this.#process.line(
      new RegExp(`^${id} ((answer|error) .*)`),
      (deadline + 20) * 1000,
    );
    return outcome;
  }

  /** Calls until the backend of this name answers. */
  async answers(name: string, backend: string): Promise<void> {
    await eventually(
      async () => {
        const outcome = await this.call(name);
        if (outcome !== `answer ${backend}`)
          throw new Error(`the gRPC client got "${outcome}", not ${backend}`);
      },
      { timeout: 60_000 },
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop('SIGKILL');
    this.#files[Symbol.dispose]();
  }
}
