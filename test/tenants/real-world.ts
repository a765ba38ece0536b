import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { credentials } from '@grpc/grpc-js';
import {
  DiscoveryResponseSchema,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { unary } from '../e2e/support/csds.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { type TemporaryDirectory, temporaryDirectory } from '../e2e/support/paths.ts';
import { type RelayConfig, RelayProcess } from '../e2e/support/relay.ts';
import type { Tally } from '../simulator/tally.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { any, type } from '../support/in-memory-relay.ts';
import { accepted } from './accepted.ts';
import { keyOf, messageOf } from './conditions.ts';
import type { Ground, Snapshot } from './ground.ts';
import { type Identity, type Policy, type Resource, types } from './policy.ts';
import { RealStream } from './real-stream.ts';
import { Reference } from './reference.ts';

const csds = '/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
const serverName = 'relay.test';
const authority = issueCertificate({ name: 'authority', authority: true });

/** The process, with mutual TLS, over files. One after another it is the ground of many cases. */
export class RealWorld implements Ground, AsyncDisposable {
  policy: Policy = { rules: [], parameters: [] };
  before: Policy | undefined;
  readonly constrained = false;
  readonly current = new Map<string, Snapshot>();
  readonly snapshots: Snapshot[] = [];
  readonly errors: Ground['errors'] = [];
  readonly tally: Tally;
  readonly #relay: RelayProcess;
  readonly #files: ResourceFiles;
  readonly #pem: TemporaryDirectory;
  readonly #config: (policy: Policy) => RelayConfig;
  readonly #streams = new Map<RealStream, Identity>();
  readonly #issued = new Map<string, Issued>();

  private constructor(
    tally: Tally,
    relay: RelayProcess,
    files: ResourceFiles,
    pem: TemporaryDirectory,
    config: (policy: Policy) => RelayConfig,
  ) {
    this.tally = tally;
    this.#relay = relay;
    this.#files = files;
    this.#pem = pem;
    this.#config = config;
  }

  static async start(workers: number, tally: Tally): Promise<RealWorld> {
    const files = new ResourceFiles();
    const pem = temporaryDirectory();
    const server = issueCertificate({ name: 'relay', issuer: authority, dns: [serverName] });
    const write = (name: string, text: string): string => {
      const path = join(pem.path, name);
      writeFileSync(path, text);
      return path;
    };
    const tls = {
      certificate: write('server.crt', server.certificate),
      private_key: write('server.key', server.privateKey),
      ca: write('ca.crt', authority.certificate),
    };
    const config = ({ rules, parameters }: Policy) => ({
      upstreams: [files.upstream],
      xds: { tls, authorization: { rules } },
      parameters,
      workers,
      drain_timeout: '100ms',
    });
    const relay = await RelayProcess.start(config({ rules: [], parameters: [] }));
    return new RealWorld(tally, relay, files, pem, config);
  }

  /** Another case: nothing of the one before is there. */
  begin(resources: readonly Resource[]): void {
    for (const stream of this.#streams.keys()) stream.disconnect();
    this.#streams.clear();
    this.current.clear();
    this.change(resources, []);
  }

  /** New or other resources, and the places of those that go. */
  change(resources: readonly Resource[], removed: readonly number[]): void {
    const keys = [...this.current.keys()];
    for (const at of removed) this.current.delete(keys[at] ?? '');
    for (const resource of resources) {
      const snapshot = { ...resource, collected: true, number: this.snapshots.length };
      this.snapshots.push(snapshot);
      this.current.set(keyOf(resource), snapshot);
    }
    for (const short of types) this.#write(short);
  }

  /** Resolves when every process goes by the new rules, and what was said by the old ones has come. */
  async reload(policy: Policy, read: () => void): Promise<void> {
    const reloads = await this.#relay.metric('config_reloads_total', 'result="accepted"');
    this.before = this.policy;
    this.policy = accepted(policy);
    this.tally.count('reload');
    // The number makes it another file, whatever the rules are.
    const marked = { ...this.#config(this.policy), node: { id: `relay-${this.snapshots.length}` } };
    this.#relay.configure(marked);
    await eventually(async () => {
      const now = await this.#relay.metric('config_reloads_total', 'result="accepted"');
      if (!(now > (Number.isNaN(reloads) ? 0 : reloads))) throw new Error(`no reload: ${this.#relay.output}`);
    });
    // Workers answer after they have taken the rules.
    await this.#relay.get('/metrics');
    await this.askStatus();
    read();
    this.before = undefined;
  }

  /** CSDS on every connection: what a client is told there is looked through as well. */
  async askStatus(): Promise<void> {
    for (const [stream, identity] of this.#streams) {
      if (stream.status !== undefined) continue;
      let answer: Buffer;
      try {
        answer = await unary(stream.connection, csds, new Uint8Array());
      } catch {
        continue; // refused: nothing was told
      }
      this.tally.count('CSDS answer');
      this.#look(answer, new Reference(this.policy, identity));
    }
  }

  open(path: string, protocol: 'sotw' | 'delta', identity: Identity): RealStream {
    const own = this.#certificateOf(identity);
    const secure = credentials.createSsl(
      Buffer.from(authority.certificate),
      ...(own === undefined ? [] : [Buffer.from(own.privateKey), Buffer.from(own.certificate)]),
    );
    const stream = new RealStream(this.#relay.xds, secure, serverName, path, protocol);
    this.#streams.set(stream, identity);
    return stream;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stream of this.#streams.keys()) stream.disconnect();
    await this.#relay[Symbol.asyncDispose]();
    this.#files[Symbol.dispose]();
    this.#pem[Symbol.dispose]();
  }

  /** Nothing of what it may not have. What it has in hand of SotW cannot be taken away, so names are not looked at. */
  #look(answer: Buffer, reference: Reference): void {
    for (const [found, digits] of answer.toString('latin1').matchAll(/[cv](\d+);/g)) {
      const snapshot = this.snapshots[Number(digits)];
      if (snapshot === undefined || !reference.allowsResource(snapshot)) {
        throw new Error(`leak: ${found} of ${JSON.stringify(snapshot)} by CSDS`);
      }
    }
  }

  #certificateOf({ uris, dns }: Identity): Issued | undefined {
    if (uris.length + dns.length === 0) return undefined;
    const key = JSON.stringify([uris, dns]);
    const known = this.#issued.get(key);
    if (known !== undefined) return known;
    const issued = issueCertificate({ name: 'client', issuer: authority, uris, dns });
    this.#issued.set(key, issued);
    return issued;
  }

  #write(short: Resource['type']): void {
    const url = type(short);
    const resources = [...this.current.values()]
      .filter((one) => one.type === short)
      .map(({ name, aliases, condition, number }) =>
        anyPack(
          ResourceSchema,
          create(ResourceSchema, {
            ...(condition === undefined
              ? { name }
              : { resourceName: { name, dynamicParameterConstraints: messageOf(condition) } }),
            aliases: [...aliases],
            version: `v${number};`,
            resource: any(url, name, `c${number};`),
          }),
        ),
      );
    const response = create(DiscoveryResponseSchema, { typeUrl: url, resources });
    this.#files.writeText(`${short}.pb`, toBinary(DiscoveryResponseSchema, response));
  }
}
