import type { TypeUrl } from '../model/brand.ts';
import { type Clock, Sweep, type Timer } from '../model/clock.ts';
import { shuffled } from '../model/random.ts';
import { isCollection } from '../model/selection.ts';
import { OverTurns } from '../model/time-slices.ts';
import { type Holder, type Interest, idOf, type Transaction, transaction } from '../model/transaction.ts';
import type { Upstream, UpstreamSink, UpstreamState } from '../model/upstream.ts';
import { type Address, formatAddress, type Lookup } from '../wire/address.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, interestOfName } from '../wire/between-relays.ts';

/** So long siblings have to answer before a client hears that something is unavailable. Milliseconds. */
export const answerGraceMs = 2000;
/** How often the name of the siblings is looked up while they are asked. Milliseconds. */
const lookupIntervalMs = 5000;
/** At most so many are asked. What ten relays do not have, the eleventh hardly has. */
const mostSiblings = 16;
/** So many names of lists may wait. A fleet has fewer: who offers more does not know what clients ask for. */
const mostListed = 1_000_000;

/** The relay: what is cached, and where to put more. */
interface SiblingsSink extends Pick<UpstreamSink, 'apply' | 'changed'> {
  /** There is an answer to it in the cache, of whatever age. */
  isAnswered(interest: Interest): boolean;
  /** The name of the upstream that serves a name, a glob or the wildcard. */
  servedBy(type: TypeUrl, selector: string): string | undefined;
  /** A sibling can answer this. */
  prefetch(interest: Interest): void;
}

interface SiblingsOptions {
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

/**
 * The other replicas of this relay, which answer while every endpoint of an upstream is away
 * (docs/adr/0126-siblings.md). They are asked for what the cache has no answer to, and for what their own clients ask.
 * What they say is last known good: the relay is ready with it, and stale.
 */
export class Siblings {
  readonly #options: SiblingsOptions;
  readonly #sink: SiblingsSink;
  /** What the upstream is asked for. */
  readonly #interests = new Set<Interest>();
  /** While siblings are asked: these, and what all of them have. */
  readonly #asked = new Set<Interest>();
  /** Those that are asked, and for what. */
  readonly #connections = new Map<string, { readonly upstream: Upstream; readonly asked: Set<Interest> }>();
  /** What is not looked at yet since the control plane went away, or since new ones were found. */
  readonly #unasked: OverTurns<Interest>;
  /** Names of lists of siblings that are not subscribed yet. */
  readonly #listed: OverTurns<string>;
  #timer: Timer | undefined;
  /** When it was asked, by `idOf`, the last one last: siblings may still answer it. */
  readonly #askedAt = new Map<string, number>();
  /** Runs while there is some. */
  readonly #grace: Sweep;
  #hasData = false;
  /** Since when something of siblings is served that the control plane has not confirmed. */
  #servedSince: number | undefined;

  constructor(options: SiblingsOptions, sink: SiblingsSink) {
    this.#options = options;
    this.#sink = sink;
    this.#unasked = new OverTurns(options.clock, (interest) => this.#look(interest));
    this.#grace = new Sweep(options.clock, answerGraceMs / 2, () => this.#waited());
    this.#listed = new OverTurns(options.clock, (name) => this.#offered(name));
  }

  /** The upstream is asked for this. */
  subscribe(interest: Interest): void {
    this.#interests.add(interest);
    this.#ask(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#interests.delete(interest);
    this.#unasked.delete(interest);
    this.#asked.delete(interest);
    for (const { upstream, asked } of this.#connections.values())
      if (asked.delete(interest)) upstream.unsubscribe(interest);
  }

  /** The upstream's own state: siblings are asked from the moment when every endpoint has failed, until it has answered. */
  follow({ down, staleSince }: UpstreamState): void {
    if (staleSince === undefined) {
      this.#servedSince = undefined;
      this.stop();
    } else if (down && !this.#asked.has(ALL_INTERESTS)) this.#open();
  }

  /** They were asked for this just now, and may have it. */
  mayAnswer(interest: Interest): boolean {
    return this.#askedAt.has(idOf(interest));
  }

  /** Not down until siblings had their time; connected once, as far as readiness goes, if they have answered. */
  joined(state: UpstreamState): UpstreamState {
    return {
      ...state,
      down: state.down && !this.mayAnswer(ALL_INTERESTS),
      everConnected: state.everConnected || this.#hasData,
      fromSiblingsSince: this.#servedSince,
    };
  }

  /** All connections end; what came from them stays. */
  stop(): void {
    this.#asked.clear();
    this.#timer?.cancel();
    this.#unasked.clear();
    this.#listed.clear();
    this.#grace.stop();
    this.#askedAt.clear();
    for (const { upstream } of this.#connections.values()) void upstream.stop();
    this.#connections.clear();
  }

  #open(): void {
    this.#asked.add(ALL_INTERESTS);
    this.#lookUp();
    this.#wait(ALL_INTERESTS);
    this.#unasked.addAll(this.#interests);
  }

  /** Asks all of them, the later ones too. */
  #ask(interest: Interest): void {
    if (!this.#asked.has(ALL_INTERESTS) || this.#asked.has(interest) || this.#sink.isAnswered(interest))
      return;
    this.#wait(interest);
    this.#asked.add(interest);
    this.#askEach(interest);
  }

  #askEach(interest: Interest): void {
    for (const { upstream, asked } of this.#connections.values()) {
      if (asked.has(interest)) continue;
      asked.add(interest);
      upstream.subscribe(interest);
    }
  }

  /** To the answer of a wildcard or glob, new ones may add something; to that of a name not. */
  #look(interest: Interest): void {
    this.#unasked.delete(interest);
    if (!this.#asked.has(interest)) this.#ask(interest);
    else if (isCollection(interest.selector) || !this.#sink.isAnswered(interest)) this.#askEach(interest);
  }

  #wait(interest: Interest): void {
    const id = idOf(interest);
    this.#askedAt.delete(id);
    this.#askedAt.set(id, this.#options.clock.monotonic());
    this.#grace.start();
  }

  /** True: some wait still. */
  #waited(): boolean {
    const latest = this.#options.clock.monotonic() - answerGraceMs;
    let isOver = false;
    for (const [id, at] of this.#askedAt) {
      if (at > latest) break;
      isOver = this.#askedAt.delete(id);
    }
    if (isOver) this.#sink.changed();
    return this.#askedAt.size > 0;
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
    if (!this.#asked.has(ALL_INTERESTS) || addresses.length === 0) return;
    const found = new Map(addresses.map((address) => [formatAddress(address), address]));
    for (const [text, { upstream }] of this.#connections) {
      if (found.has(text)) continue;
      this.#connections.delete(text);
      void upstream.stop();
    }
    const others = shuffled(found, this.#options.random).filter(([text]) => !this.#connections.has(text));
    const added = others.slice(0, mostSiblings - this.#connections.size);
    for (const [text, address] of added) this.#connect(text, address);
    if (added.length > 0) this.#unasked.addAll(this.#asked);
  }

  #connect(text: string, address: Address): void {
    const sink: UpstreamSink = {
      apply: (said) => {
        if (this.#connections.get(text)?.upstream === upstream) this.#heard(said);
      },
      restamp: () => {},
      changed: () => {},
    };
    const upstream = this.#options.connect(address, sink);
    this.#connections.set(text, { upstream, asked: new Set() });
    upstream.start();
  }

  /** A removal at a sibling, or a name that it does not have, says nothing: only what is there counts. */
  #heard({ holder, type, version, puts, resolved }: Transaction): void {
    if (type === INTERESTS_TYPE) {
      const names = puts.values().map(({ name }) => name);
      this.#listed.addAll(names.take(mostListed - this.#listed.size));
      return;
    }
    if (puts.length + resolved.length === 0) return;
    const upstream = this.#options.name;
    const sibling: Holder = { ...holder, key: `sibling ${holder.key}`, upstream, restored: true };
    const isFirst = this.#servedSince === undefined && puts.length > 0;
    if (isFirst) {
      this.#hasData = true;
      this.#servedSince = this.#options.clock.now();
    }
    this.#sink.apply(transaction({ holder: sibling, type, version, puts, resolved }));
    if (isFirst) this.#sink.changed();
  }

  #offered(name: string): void {
    this.#listed.delete(name);
    const interest = interestOfName(name);
    if (interest === undefined) return;
    const upstream = this.#sink.servedBy(interest.type, interest.selector);
    if (upstream === this.#options.name) this.#sink.prefetch(interest);
  }
}
