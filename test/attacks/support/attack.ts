import { type ClientHttp2Session, connect } from 'node:http2';
import { type Client, Metadata } from '@grpc/grpc-js';
import { XdsClient, type XdsClientOptions } from '../../e2e/support/xds-client.ts';
import { openCall, type RawCall, rawClient } from '../../support/grpc-calls.ts';
import { RawConnection, type RawOptions } from './raw-connection.ts';
import { addressOf, secureAs, type Target, tlsOptions } from './target.ts';

/** What a target must have for an attack to mean anything. */
export type Need = 'TLS' | 'identities' | 'admin' | 'REST';

/** One row of a table. It has a second or two; what it leaves open is closed after it. */
export interface Attack {
  /** What the peer does. */
  readonly name: string;
  readonly needs?: readonly Need[];
  /** Rejects if the relay's own reaction is wrong. That others were not disturbed is checked by `runAttack`. */
  readonly run: (arena: Arena) => Promise<void>;
}

/** What the target lacks for it. */
export function lackingFor(
  { needs = [] }: Pick<Attack, 'needs'>,
  { tls, admin, rest }: Target,
): readonly Need[] {
  const has: Readonly<Record<Need, boolean>> = {
    TLS: tls !== undefined,
    identities: tls?.tenant !== undefined && tls.attacker !== undefined && tls.impostors !== undefined,
    admin: admin !== undefined,
    REST: rest !== undefined,
  };
  return needs.filter((need) => !has[need]);
}

/** The means of an attack against one target. */
export class Arena implements AsyncDisposable {
  readonly target: Target;
  readonly #stack = new AsyncDisposableStack();

  constructor(target: Target) {
    this.target = target;
  }

  /** URL of the admin listener. */
  get admin(): string {
    const { admin } = this.target;
    if (admin === undefined) throw new Error('the target has no admin listener');
    return admin;
  }

  /** A connection of raw frames. */
  async raw(options?: RawOptions): Promise<RawConnection> {
    return this.#stack.use(await RawConnection.open(this.target, options));
  }

  /** So many of them. */
  raws(count: number, options?: RawOptions): Promise<readonly RawConnection[]> {
    return Promise.all(Array.from({ length: count }, () => this.raw(options)));
  }

  /** A stream on ADS, or on another path, on a connection of its own. */
  xds(protocol: 'sotw' | 'delta', options: XdsClientOptions = {}): XdsClient {
    const client = new XdsClient(addressOf(this.target), protocol, {
      ...secureAs(this.target, 'attacker'),
      ...options,
    });
    return this.#stack.use(client);
  }

  /** A connection of Node's HTTP/2, which minds the windows. */
  session(): ClientHttp2Session {
    const { tls, attackFrom } = this.target;
    const scheme = tls === undefined ? 'http' : 'https';
    const from: object = attackFrom === undefined ? {} : { localAddress: attackFrom };
    const options = tls === undefined ? from : tlsOptions(this.target);
    const session = connect(`${scheme}://${addressOf(this.target)}`, options);
    session.on('error', () => undefined);
    this.#stack.defer(() => session.destroy());
    return session;
  }

  /** A connection of grpc-js, for any call. */
  channel(): Client {
    const { secure, serverName } = secureAs(this.target, 'attacker');
    const names =
      serverName === undefined
        ? {}
        : { 'grpc.ssl_target_name_override': serverName, 'grpc.default_authority': serverName };
    const large = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 };
    const client = rawClient(addressOf(this.target), secure, { ...names, ...large });
    this.#stack.defer(() => client.close());
    return client;
  }

  call(client: Client, path: string, metadata: Readonly<Record<string, string>> = {}): RawCall {
    const call = openCall(client, path, Metadata.fromHttp2Headers(metadata));
    this.#stack.defer(() => call.cancel());
    return call;
  }

  /** Closed when the attack is over. */
  readonly use = <T extends Disposable | AsyncDisposable>(resource: T): T => this.#stack.use(resource);

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}
