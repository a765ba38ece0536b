import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { ownPort } from '../../support/ports.ts';
import { eventually } from './eventually.ts';
import { get } from './http.ts';
import type { KubeApiserver } from './kube-apiserver.ts';
import { cached, temporaryDirectory } from './paths.ts';
import { Process, run } from './process.ts';

/** 1.31, of the proxy of Go modules: Istio's releases are not there. */
const version = 'v0.0.0-20260827124520-eed52ebb66ad';
const namespace = 'istio-system';

export interface IstiodBinary {
  readonly path: string;
  /** Istio's CustomResourceDefinitions. */
  readonly definitions: string;
}

/** Istio's discovery server, built once from its Go module, which takes minutes; the error says why there is none. */
export async function istiodBinary(): Promise<Result<IstiodBinary>> {
  const path = join(cached(`istiod-${version}`), 'pilot-discovery');
  try {
    const args = ['mod', 'download', '-json', `istio.io/istio@${version}`];
    // Its own go.mod replaces modules, so it is built where it lies.
    const { Dir: cwd } = z.object({ Dir: z.string() }).parse(JSON.parse(await run({ command: 'go', args })));
    const flags = ['-buildvcs=false', '-trimpath', '-ldflags=-s -w', '-o', path];
    if (!existsSync(path))
      await run({ command: 'nice', args: ['go', 'build', ...flags, './pilot/cmd/pilot-discovery'], cwd });
    return ok({ path, definitions: join(cwd, 'manifests/charts/base/files/crd-all.gen.yaml') });
  } catch (error) {
    return fail(`istiod ${version} needs Go and its modules: ${String(error)}`);
  }
}

/** A real istiod, with a real API server of Kubernetes: its own certificate authority, tokens and identities. */
export class Istiod implements AsyncDisposable {
  /** HOST:PORT of xDS with TLS, as port 15012 of the Service. */
  readonly address: string;
  readonly #binary: IstiodBinary;
  readonly #server: KubeApiserver;
  readonly #stack = new AsyncDisposableStack();
  readonly #directory = this.#stack.use(temporaryDirectory()).path;
  readonly #http: string;
  #process: Process | undefined;

  private constructor(binary: IstiodBinary, server: KubeApiserver, address: string, http: string) {
    this.#binary = binary;
    this.#server = server;
    this.address = address;
    this.#http = http;
  }

  static async start(binary: IstiodBinary, server: KubeApiserver): Promise<Istiod> {
    await server.kubectl('apply', '--server-side', '-f', binary.definitions);
    await server.kubectl('create', 'namespace', namespace);
    const [xds, http] = [`127.0.0.1:${await ownPort()}`, `127.0.0.1:${await ownPort()}`];
    const istiod = new Istiod(binary, server, xds, http);
    await istiod.start();
    return istiod;
  }

  get output(): string {
    return this.#process?.output ?? '';
  }

  /** Also after `kill`: at the same address. */
  async start(): Promise<void> {
    const any = '127.0.0.1:0';
    const mesh = join(this.#directory, 'mesh.yaml');
    // A proxy has the certificates for mutual TLS within the mesh from istio-agent.
    writeFileSync(mesh, 'enableAutoMtls: false\n');
    this.#process = new Process({
      command: this.#binary.path,
      args: [
        'discovery',
        `--meshConfig=${mesh}`,
        `--kubeconfig=${this.#server.kubeconfig}`,
        `--secureGRPCAddr=${this.address}`,
        `--httpAddr=${this.#http}`,
        `--grpcAddr=${any}`,
        `--httpsAddr=${any}`,
        `--monitoringAddr=${any}`,
        '--ctrlz_port=0',
      ],
      env: {
        POD_NAMESPACE: namespace,
        POD_NAME: 'istiod-1',
        PILOT_CERT_PROVIDER: 'istiod',
        // Filters that only Istio's own build of Envoy has.
        PILOT_ENABLE_ALPN_FILTER: 'false',
        PILOT_ENABLE_METADATA_EXCHANGE: 'false',
      },
      cwd: this.#directory,
    });
    await eventually(
      async () => {
        const { status } = await get(`http://${this.#http}/ready`);
        if (status !== 200) throw new Error(this.output);
      },
      { timeout: 120_000, pause: 500 },
    );
  }

  async kill(): Promise<void> {
    await this.#process?.stop('SIGKILL');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await this.#stack.disposeAsync();
  }
}
