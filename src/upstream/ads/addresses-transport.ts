import { isIP } from 'node:net';
import { shuffled } from '../../model/random.ts';
import type { Address, Lookup } from '../../wire/address.ts';
import { explainError } from '../../wire/node-error.ts';
import type { Channel, ChannelHandler, Transport } from './channel.ts';
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
    return namedChannel(endpoint, known, transport, options, handler);
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
function namedChannel(
  { host: name, port }: NamedAddress,
  known: KnownAddresses,
  transport: Transport,
  { lookup, random, clock, connectTimeoutMs }: AddressesOptions,
  handler: ChannelHandler,
): Channel {
  let phase: 'looking up' | 'connecting' | 'connected' | 'over' = 'looking up';
  let current: { readonly channel: Channel; readonly host: string } | undefined;
  const reasons = new Set<string>();
  const lose = (reason: string, asked?: boolean): void => {
    phase = 'over';
    handler.lost(reason, asked);
  };
  const tryNext = ([host, ...left]: readonly string[]): void => {
    if (host === undefined) {
      lose([...reasons].toSorted().join('; '));
      return;
    }
    const connected = (): void => {
      phase = 'connected';
      handler.connected();
    };
    const lost = (reason: string, asked?: boolean): void => {
      if (phase === 'connected') lose(reason, asked);
      else {
        reasons.add(reason);
        tryNext(left);
      }
    };
    current = { channel: transport({ kind: 'tcp', host, port }, { connected, lost }, name), host };
  };
  const found = (hosts: readonly string[], problem: string): void => {
    if (phase !== 'looking up') return;
    timer.cancel();
    phase = 'connecting';
    if (hosts.length > 0) known.found = hosts;
    if (known.found.length === 0) reasons.add(`${name}: ${problem}`);
    const order = shuffled(known.found, random);
    const { avoided } = known;
    tryNext([...order.filter((one) => one !== avoided), ...order.filter((one) => one === avoided)]);
  };
  const timer = clock.after(connectTimeoutMs, () =>
    found([], `not looked up within ${connectTimeoutMs / 1000} s`),
  );
  lookup(name).then(
    (hosts) => found(hosts, 'the name has no addresses'),
    (error: unknown) => found([], explainError(error)),
  );
  return {
    open(path, via, streamHandler) {
      if (current === undefined) throw new Error('a stream was opened before the connection');
      return current.channel.open(path, via, streamHandler);
    },
    close() {
      // Its owner gives up a connection that does not answer; a connection that ends by itself is no reason to avoid it.
      if (phase === 'connected') known.avoided = current?.host;
      phase = 'over';
      timer.cancel();
      current?.channel.close();
    },
  };
}
