import { isIP } from 'node:net';
import type { Timer } from '../../model/clock.ts';
import { shuffled } from '../../model/random.ts';
import type { Address, Lookup } from '../../wire/address.ts';
import { explainError } from '../../wire/node-error.ts';
import type { Channel, ChannelHandler, ChannelStream, ChannelStreamHandler, Transport } from './channel.ts';
import type { GrpcChannelOptions } from './grpc-channel.ts';

/** `random`: 0 ≤ x < 1. `connectTimeoutMs`: for the lookup, and again for each address. */
type AddressesOptions = Pick<GrpcChannelOptions, 'clock' | 'connectTimeoutMs'> & {
  readonly lookup: Lookup;
  readonly random: () => number;
};

type NamedAddress = Extract<Address, { readonly kind: 'tcp' }>;

/**
 * An endpoint that is a host name stands for all its addresses (docs/adr/0127-addresses-of-a-name.md). Each try looks the
 * name up again and goes through its addresses in random order until one is connected. It has failed when all have.
 */
export function addressesTransport(transport: Transport, options: AddressesOptions): Transport {
  const names = new Map<string, KnownAddresses>();
  return (endpoint, handler) => {
    if (endpoint.kind === 'unix' || isIP(endpoint.host) !== 0) return transport(endpoint, handler);
    const known = names.get(endpoint.host) ?? { found: [], avoided: undefined };
    names.set(endpoint.host, known);
    return new NamedChannel(endpoint, known, transport, options, handler);
  };
}

/** What is remembered of a name between tries. */
interface KnownAddresses {
  /** Those found last: a lookup that fails changes nothing. */
  found: readonly string[];
  /** It was connected and given up, because it did not answer: the others come first. */
  avoided: string | undefined;
}

/** One try at the addresses of a name, and then the connection. */
class NamedChannel implements Channel {
  readonly #endpoint: NamedAddress;
  readonly #known: KnownAddresses;
  readonly #transport: Transport;
  readonly #handler: ChannelHandler;
  readonly #reasons = new Set<string>();
  readonly #timer: Timer;
  #left: string[] = [];
  #current: { readonly channel: Channel; readonly host: string } | undefined;
  #phase: 'looking up' | 'connecting' | 'connected' | 'over' = 'looking up';

  constructor(
    endpoint: NamedAddress,
    known: KnownAddresses,
    transport: Transport,
    { lookup, random, clock, connectTimeoutMs }: AddressesOptions,
    handler: ChannelHandler,
  ) {
    this.#endpoint = endpoint;
    this.#known = known;
    this.#transport = transport;
    this.#handler = handler;
    const { host } = endpoint;
    const found = (hosts: readonly string[], problem: string): void => {
      if (this.#phase !== 'looking up') return;
      this.#timer.cancel();
      this.#phase = 'connecting';
      if (hosts.length > 0) known.found = hosts;
      if (known.found.length === 0) this.#reasons.add(`${host}: ${problem}`);
      const order = shuffled(known.found, random);
      this.#left = [
        ...order.filter((one) => one !== known.avoided),
        ...order.filter((one) => one === known.avoided),
      ];
      this.#next();
    };
    this.#timer = clock.after(connectTimeoutMs, () =>
      found([], `not looked up within ${connectTimeoutMs / 1000} s`),
    );
    lookup(host).then(
      (hosts) => found(hosts, 'the name has no addresses'),
      (error: unknown) => found([], explainError(error)),
    );
  }

  open(path: string, via: string, handler: ChannelStreamHandler): ChannelStream {
    if (this.#current === undefined) throw new Error('a stream was opened before the connection');
    return this.#current.channel.open(path, via, handler);
  }

  close(): void {
    // Its owner gives up a connection that does not answer; a connection that ends by itself is no reason to avoid it.
    if (this.#phase === 'connected') this.#known.avoided = this.#current?.host;
    this.#phase = 'over';
    this.#timer.cancel();
    this.#current?.channel.close();
  }

  #next(): void {
    const host = this.#left.shift();
    if (host === undefined) {
      this.#lose([...this.#reasons].toSorted().join('; '));
      return;
    }
    const { port, host: name } = this.#endpoint;
    const channel = this.#transport(
      { kind: 'tcp', host, port },
      {
        connected: () => {
          this.#phase = 'connected';
          this.#handler.connected();
        },
        lost: (reason, asked) => {
          if (this.#phase === 'connected') {
            this.#lose(reason, asked);
            return;
          }
          this.#reasons.add(reason);
          this.#next();
        },
      },
      name,
    );
    this.#current = { channel, host };
  }

  #lose(reason: string, asked?: boolean): void {
    this.#phase = 'over';
    this.#handler.lost(reason, asked);
  }
}
