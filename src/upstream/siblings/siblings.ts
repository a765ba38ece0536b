import type { Clock, Timer } from '../../model/clock.ts';
import { type Interest, type Transaction, transaction } from '../../model/transaction.ts';
import type { Upstream, UpstreamSink } from '../../model/upstream.ts';
import { type Address, formatHostPort } from '../../wire/address.ts';
import { type Lookup, shuffled } from '../../wire/lookup.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, interestOfName } from '../../wire/sibling.ts';

/** How often the name of the siblings is looked up while they are asked. Milliseconds. */
const lookupIntervalMs = 5000;
/** At most so many are asked. What ten relays do not have, the eleventh hardly has. */
const mostSiblings = 16;

/** What comes from siblings. */
export interface SiblingsSink {
  /** A transaction that is `lastKnownGood`. */
  apply(transaction: Transaction): void;
  /** A sibling can answer this. */
  offered(interest: Interest): void;
}

export interface SiblingsOptions {
  /** Of the upstream in whose place they answer. */
  readonly name: string;
  /** All addresses of a host name are siblings. */
  readonly address: Address;
  readonly lookup: Lookup;
  readonly random: () => number;
  readonly clock: Clock;
  /** One relay as an upstream. It concludes nothing from silence. */
  readonly connect: (address: Address, sink: UpstreamSink) => Upstream;
  /** The name could not be looked up. */
  readonly lookupFailed: (host: string, error: unknown) => void;
}

/** The other replicas of this relay, while they are asked. */
export class Siblings {
  readonly #options: SiblingsOptions;
  readonly #sink: SiblingsSink;
  readonly #asked = new Set<Interest>();
  readonly #connections = new Map<string, Upstream>();
  #timer: Timer | undefined;
  #isOpen = false;

  constructor(options: SiblingsOptions, sink: SiblingsSink) {
    this.#options = options;
    this.#sink = sink;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#asked.add(ALL_INTERESTS);
    this.#lookUp();
  }

  /** All connections end; what came from them stays. */
  close(): void {
    this.#isOpen = false;
    this.#timer?.cancel();
    for (const connection of this.#connections.values()) void connection.stop();
    this.#connections.clear();
    this.#asked.clear();
  }

  /** Asks all of them, the later ones too. */
  ask(interest: Interest): void {
    if (this.#asked.has(interest)) return;
    this.#asked.add(interest);
    for (const connection of this.#connections.values()) connection.subscribe(interest);
  }

  forget(interest: Interest): void {
    if (!this.#asked.delete(interest)) return;
    for (const connection of this.#connections.values()) connection.unsubscribe(interest);
  }

  #lookUp(): void {
    const { address, lookup, clock, lookupFailed } = this.#options;
    if (address.kind === 'unix') {
      this.#found([address]);
      return;
    }
    const { host, port } = address;
    this.#timer = clock.after(lookupIntervalMs, () => this.#lookUp());
    lookup(host).then(
      (hosts) => this.#found(hosts.map((one) => ({ kind: 'tcp', host: one, port }))),
      // The addresses that were found before stay.
      (error: unknown) => lookupFailed(host, error),
    );
  }

  #found(addresses: readonly Address[]): void {
    if (!this.#isOpen || addresses.length === 0) return;
    const found = new Map(addresses.map((address) => [textOf(address), address]));
    for (const [text, connection] of this.#connections) {
      if (found.has(text)) continue;
      this.#connections.delete(text);
      void connection.stop();
    }
    for (const [text, address] of shuffled([...found], this.#options.random)) {
      if (this.#connections.size >= mostSiblings) return;
      if (!this.#connections.has(text)) this.#connect(text, address);
    }
  }

  #connect(text: string, address: Address): void {
    const sink: UpstreamSink = {
      apply: (said) => {
        if (this.#connections.get(text) === connection) this.#heard(said);
      },
      restamp: () => {},
      changed: () => {},
    };
    const connection = this.#options.connect(address, sink);
    this.#connections.set(text, connection);
    for (const interest of this.#asked) connection.subscribe(interest);
    connection.start();
  }

  /** A removal at a sibling, or a name that it does not have, says nothing: only what is there counts. */
  #heard({ holder, type, version, puts, resolved }: Transaction): void {
    if (type === INTERESTS_TYPE) {
      for (const { name } of puts) {
        const interest = interestOfName(name);
        if (interest !== undefined) this.#sink.offered(interest);
      }
      return;
    }
    if (puts.length + resolved.length === 0) return;
    const { role, exactParameters } = holder;
    const sibling = {
      key: `sibling ${holder.key}`,
      upstream: this.#options.name,
      role,
      ...(exactParameters === undefined ? {} : { exactParameters }),
    };
    this.#sink.apply(transaction({ holder: sibling, type, version, puts, resolved, lastKnownGood: true }));
  }
}

const textOf = (address: Address): string =>
  address.kind === 'unix' ? address.path : formatHostPort(address.host, address.port);
