import type { TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { shuffled } from '../model/random.ts';
import { type Interest, type Transaction, transaction } from '../model/transaction.ts';
import type { Refusals, Suspect, Upstream, UpstreamSink, UpstreamState } from '../model/upstream.ts';
import { type Address, formatHostPort, type Lookup } from '../wire/address.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, interestOfName } from '../wire/via.ts';
import type { SessionRule } from './ads/node.ts';

/** So long siblings have to answer before a client hears that something is unavailable. Milliseconds. */
const answerGraceMs = 2000;

/** A control plane's upstream. */
interface ControlPlane extends Upstream {
  reconfigure(rules: readonly SessionRule[]): void;
  reannounce(): boolean;
}

/** What is cached, and where to put more. */
export interface SiblingsPort extends SiblingsSink {
  /** There is an answer to it in the cache, of whatever age. */
  isAnswered(interest: Interest): boolean;
}

/**
 * An upstream whose siblings answer while every endpoint of it is away (docs/adr/0126-siblings.md). They are asked for
 * what the cache has no answer to, and for what their own clients ask. What they say is last known good: the relay is
 * ready with it, and stale.
 */
export class UpstreamWithSiblings implements Upstream {
  readonly name: string;
  readonly #upstream: ControlPlane;
  readonly #siblings: Siblings;
  readonly #port: SiblingsPort;
  readonly #clock: Clock;
  readonly #changed: () => void;
  readonly #interests = new Set<Interest>();
  /** Runs while siblings may still answer what was asked last. */
  #grace: Timer | undefined;
  #askedAt = 0;
  #hasData = false;
  /** Since when something of siblings is served that the control plane has not confirmed. */
  #fromSiblingsSince: number | undefined;

  /** `make`: the control plane's upstream, with the sink given. */
  constructor(
    options: SiblingsOptions,
    make: (sink: UpstreamSink) => ControlPlane,
    sink: UpstreamSink,
    port: SiblingsPort,
  ) {
    this.name = options.name;
    this.#port = port;
    this.#clock = options.clock;
    this.#changed = () => sink.changed();
    this.#siblings = new Siblings(options, {
      apply: (said) => {
        const isFirst = this.#fromSiblingsSince === undefined && said.puts.length > 0;
        if (isFirst) {
          this.#hasData = true;
          this.#fromSiblingsSince = this.#clock.now();
        }
        port.apply(said);
        if (isFirst) sink.changed();
      },
      offered: (interest) => {
        if (this.claims(interest.type, interest.selector)) port.offered(interest);
      },
    });
    this.#upstream = make({
      apply: (said) => sink.apply(said),
      restamp: (restamp) => sink.restamp(restamp),
      streamReopened: (holders) => sink.streamReopened?.(holders),
      isIdle: (interest) => sink.isIdle?.(interest) === true,
      endIfIdle: (interest) => sink.endIfIdle?.(interest),
      changed: () => {
        this.#follow();
        sink.changed();
      },
    });
  }

  claims(type: TypeUrl, selector: string): boolean {
    return this.#upstream.claims(type, selector);
  }

  subscribe(interest: Interest): void {
    this.#interests.add(interest);
    this.#upstream.subscribe(interest);
    this.#ask(interest);
  }

  resubscribe(interest: Interest): void {
    this.#upstream.resubscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#interests.delete(interest);
    this.#siblings.forget(interest);
    this.#upstream.unsubscribe(interest);
  }

  markIdle(interest: Interest): void {
    this.#upstream.markIdle(interest);
  }

  markActive(interest: Interest): void {
    this.#upstream.markActive(interest);
  }

  refusal(interest: Interest): string | undefined {
    return this.#upstream.refusal(interest);
  }

  refusals(): Refusals | undefined {
    return this.#upstream.refusals();
  }

  /** Not down while siblings may still answer; connected once, as far as readiness goes, if they have. */
  state(): UpstreamState {
    const state = this.#upstream.state();
    const down = state.down && this.#grace === undefined;
    return {
      ...state,
      down,
      everConnected: state.everConnected || this.#hasData,
      fromSiblingsSince: this.#fromSiblingsSince,
    };
  }

  suspects(): readonly Suspect[] {
    return this.#upstream.suspects();
  }

  reconfigure(rules: readonly SessionRule[]): void {
    this.#upstream.reconfigure(rules);
  }

  reannounce(): boolean {
    return this.#upstream.reannounce();
  }

  start(): void {
    this.#upstream.start();
  }

  async stop(): Promise<void> {
    this.#close();
    await this.#upstream.stop();
  }

  /** Siblings are asked from the moment when every endpoint has failed, until the control plane has answered. */
  #follow(): void {
    const { down, staleSince } = this.#upstream.state();
    if (staleSince === undefined) {
      this.#fromSiblingsSince = undefined;
      this.#close();
    } else if (down && !this.#siblings.isOpen) this.#open();
  }

  #open(): void {
    this.#siblings.open();
    this.#wait();
    for (const interest of this.#interests) this.#ask(interest);
  }

  #close(): void {
    this.#siblings.close();
    this.#grace?.cancel();
    this.#grace = undefined;
  }

  #ask(interest: Interest): void {
    if (!this.#siblings.isOpen || this.#port.isAnswered(interest)) return;
    this.#wait();
    this.#siblings.ask(interest);
  }

  #wait(): void {
    this.#askedAt = this.#clock.now();
    this.#grace ??= this.#clock.after(answerGraceMs, () => this.#waited());
  }

  #waited(): void {
    const left = this.#askedAt + answerGraceMs - this.#clock.now();
    this.#grace = left > 0 ? this.#clock.after(left, () => this.#waited()) : undefined;
    if (this.#grace === undefined) this.#changed();
  }
}

/** How often the name of the siblings is looked up while they are asked. Milliseconds. */
const lookupIntervalMs = 5000;
/** At most so many are asked. What ten relays do not have, the eleventh hardly has. */
const mostSiblings = 16;

/** What comes from siblings. */
export interface SiblingsSink {
  /** A transaction whose holder is `restored`: last known good. */
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
    for (const [text, address] of shuffled(found, this.#options.random)) {
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
      restored: true as const,
      ...(exactParameters === undefined ? {} : { exactParameters }),
    };
    this.#sink.apply(transaction({ holder: sibling, type, version, puts, resolved }));
  }
}

const textOf = (address: Address): string =>
  address.kind === 'unix' ? address.path : formatHostPort(address.host, address.port);
