import { ConnectError } from '@connectrpc/connect';
import type { DeltaDiscoveryResponse } from '../gen/envoy/service/discovery/v3/discovery_pb.ts';
import { typeUrl } from '../model/brand.ts';
import { printable } from '../model/printable.ts';
import { typeInfo } from '../model/types.ts';
import { adminClient } from './admin-client.ts';
import { demoTypes } from './demo-client.ts';

export interface NarratorOptions {
  readonly client: string;
  readonly env: string;
  /** URL of the relay's admin listener. */
  readonly admin: string;
  readonly say: (line: string) => void;
  readonly colours: boolean;
}

/**
 * Tells what a sample client receives. A client that asks by plain names, as Envoy does, never sees the constraints: so
 * the relay is asked which variant it was.
 */
export class Narrator {
  /** Every type has been answered, and told. */
  readonly everything: Promise<void>;
  readonly #options: NarratorOptions;
  readonly #missing = new Set<string>(demoTypes);
  #complete: () => void = () => {};
  #told: Promise<void> = Promise.resolve();

  constructor(options: NarratorOptions) {
    this.#options = options;
    this.everything = new Promise((resolve) => {
      this.#complete = resolve;
    });
  }

  /** Each line needs an answer of the relay, so responses are told one after the other, in order. */
  received(response: DeltaDiscoveryResponse): void {
    this.#told = this.#told.then(() => this.#tell(response));
  }

  rejected({ typeUrl: url, resources }: DeltaDiscoveryResponse, reason: string): void {
    const names = resources.map(({ name }) => name).join(', ');
    this.#told = this.#told.then(() => this.#say(typeInfo(typeUrl(url)).short, names, `rejected: ${reason}`));
  }

  ended(reason: string): void {
    this.#say('stream ended', '', printable(reason));
  }

  async #tell(response: DeltaDiscoveryResponse): Promise<void> {
    const { short } = typeInfo(typeUrl(response.typeUrl));
    for (const resource of response.resources) {
      this.#say(
        short,
        resource.name,
        `${await this.#variant(short, resource.name)}  version ${printable(resource.version)}`,
      );
    }
    for (const name of response.removedResources) this.#say(short, name, 'removed');
    this.#missing.delete(short);
    if (this.#missing.size === 0) this.#complete();
  }

  async #variant(type: string, name: string): Promise<string> {
    const client = adminClient({ admin: this.#options.admin });
    if (!client.ok) return client.error;
    try {
      const { match } = await client.value.rpc.explain({
        type,
        name,
        parameters: { env: this.#options.env },
      });
      return match.padEnd(42);
    } catch (error) {
      return `(${ConnectError.from(error).rawMessage})`;
    }
  }

  #say(type: string, name: string, what: string): void {
    const { client: id, env, colours, say } = this.#options;
    const client = `[${id}]`.padEnd(8);
    const paint = env === 'prod' ? 32 : 36;
    const shown = colours ? `\u001B[${paint}m${client}\u001B[0m` : client;
    say(`${shown} ${type.padEnd(4)} ${printable(name).padEnd(16)} ${what}`.trimEnd());
  }
}
