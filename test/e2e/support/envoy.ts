import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { eventually } from './eventually.ts';
import { type Answer, get } from './http.ts';
import { type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { Process } from './process.ts';
import {
  configSource,
  httpOptions,
  type Source,
  socketAddress,
  staticCluster,
  XDS_CLUSTER,
} from './resources.ts';

/** How Envoy asks: everything on one ADS stream, or LDS and CDS on services of their own. */
export type Transport = 'ads-sotw' | 'ads-delta' | 'grpc' | 'delta-grpc' | 'rest';

/** Where the resources themselves say that their resources come from. */
export const sourceOf = (transport: Transport): Source =>
  transport === 'ads-sotw' || transport === 'ads-delta' ? 'ads' : transport;

export interface EnvoyOptions {
  /** HOST:PORT of its xDS server. */
  readonly xds: string;
  readonly transport: Transport;
  readonly id?: string;
  readonly cluster?: string;
  readonly metadata?: object;
  /** Bytes that its xDS server may have on the way to it, per stream and per connection. */
  readonly window?: number;
  /** It polls over HTTP/2: all polls go over one connection. Without it one that is busy is not waited for. */
  readonly http2?: boolean;
  /** Of the cluster of its xDS server. */
  readonly transportSocket?: object;
  /** More of the bootstrap, at its top. */
  readonly bootstrap?: object;
}

const listenersSchema = z.object({
  listener_statuses: z
    .array(
      z.object({
        name: z.string(),
        local_address: z.object({ socket_address: z.object({ port_value: z.number() }) }),
      }),
    )
    .default([]),
});

/** A real Envoy with its admin port on any free port. */
export class Envoy implements AsyncDisposable {
  readonly #process: Process;
  readonly #admin: string;
  readonly #files: TemporaryDirectory;

  private constructor(child: Process, admin: string, files: TemporaryDirectory) {
    this.#process = child;
    this.#admin = admin;
    this.#files = files;
  }

  static start(binary: string, options: EnvoyOptions): Promise<Envoy> {
    return Envoy.boot(binary, bootstrapOf(options));
  }

  /** Resolves when its admin port answers: it may still wait for its configuration. */
  static async boot(binary: string, content: object): Promise<Envoy> {
    const files = temporaryDirectory();
    const bootstrap = join(files.path, 'bootstrap.json');
    const adminPath = join(files.path, 'admin');
    writeFileSync(bootstrap, JSON.stringify(content));
    const args = ['--config-path', bootstrap, '--admin-address-path', adminPath, '--use-dynamic-base-id'];
    args.push(
      '--concurrency',
      '1',
      '--log-level',
      'warning',
      '--component-log-level',
      'config:info,upstream:info',
    );
    const child = new Process({ command: binary, args });
    const ended = child.exited.then((how) => {
      throw new Error(`Envoy ended (${how}):\n${child.output}`);
    });
    const started = eventually(() => {
      const address = existsSync(adminPath) ? readFileSync(adminPath, 'utf8').trim() : '';
      if (address === '') throw new Error(`Envoy has no admin address:\n${child.output}`);
      return address;
    });
    return new Envoy(child, await Promise.race([started, ended]), files);
  }

  /** Its log's end. */
  get output(): string {
    return this.#process.output;
  }

  async admin(path: string): Promise<Answer> {
    return get(`http://${this.#admin}${path}`);
  }

  async configDump(): Promise<string> {
    const { body } = await this.admin('/config_dump?include_eds');
    return body;
  }

  /** As it says it of itself: 1.40.0. */
  async version(): Promise<string> {
    const { body } = await this.admin('/server_info');
    const { version } = z.object({ version: z.string() }).parse(JSON.parse(body));
    return version.split('/')[1] ?? version;
  }

  /** A counter or gauge. */
  async stat(name: string): Promise<number> {
    const { body } = await this.admin(`/stats?filter=${encodeURIComponent(`^${name}$`)}`);
    return Number(body.split(': ')[1] ?? Number.NaN);
  }

  /** Base URL of a listener; throws until it is there. */
  async url(listener: string): Promise<string> {
    const { body } = await this.admin('/listeners?format=json');
    const { listener_statuses: all } = listenersSchema.parse(JSON.parse(body));
    const found = all.find(({ name }) => name === listener);
    if (found === undefined) throw new Error(`Envoy has no listener ${listener}:\n${this.output}`);
    return `http://127.0.0.1:${found.local_address.socket_address.port_value}`;
  }

  /** One request through a listener; throws if the listener is not there. */
  async get(listener: string, path: string): Promise<Answer> {
    return get(`${await this.url(listener)}${path}`);
  }

  /** Waits for this answer to a request through a listener. */
  async answers(listener: string, path: string, expected: Answer | string, timeout?: number): Promise<void> {
    const patience = timeout === undefined ? {} : { timeout };
    await eventually(async () => {
      const answer = await this.get(listener, path);
      const wanted = typeof expected === 'string' ? { status: 200, body: expected } : expected;
      if (answer.status === wanted.status && answer.body === wanted.body) return;
      const want = JSON.stringify(wanted);
      throw new Error(
        `${path} gave ${JSON.stringify(answer)} instead of ${want}; Envoy says:\n${this.output}`,
      );
    }, patience);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop();
    this.#files[Symbol.dispose]();
  }
}

function bootstrapOf(options: EnvoyOptions): object {
  const { id = 'envoy', cluster = 'test', metadata = {}, bootstrap = {} } = options;
  return {
    node: { id, cluster, metadata },
    admin: { address: socketAddress(0) },
    dynamic_resources: dynamicResources(options.transport),
    static_resources: { clusters: [xdsCluster(options)] },
    ...bootstrap,
  };
}

function dynamicResources(transport: Transport): object {
  if (transport === 'grpc' || transport === 'delta-grpc' || transport === 'rest') {
    return { lds_config: configSource(transport), cds_config: configSource(transport) };
  }
  return {
    lds_config: configSource('ads'),
    cds_config: configSource('ads'),
    ads_config: {
      api_type: transport === 'ads-sotw' ? 'GRPC' : 'DELTA_GRPC',
      transport_api_version: 'V3',
      grpc_services: [{ envoy_grpc: { cluster_name: XDS_CLUSTER } }],
    },
  };
}

function xdsCluster({
  xds,
  transport,
  window,
  http2 = transport !== 'rest',
  transportSocket,
}: EnvoyOptions): object {
  const port = Number(xds.slice(xds.lastIndexOf(':') + 1));
  const windows =
    window === undefined
      ? {}
      : { initial_stream_window_size: window, initial_connection_window_size: window };
  const http = httpOptions(http2 ? { http2_protocol_options: windows } : { http_protocol_options: {} });
  return staticCluster(XDS_CLUSTER, port, {
    ...http,
    connect_timeout: '60s', // a machine with much to do takes long for a TLS handshake
    transport_socket: transportSocket,
  });
}
