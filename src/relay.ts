import { Store } from './cache/store.ts';
import { XdsServer } from './downstream/server.ts';
import type { DownstreamServices } from './downstream/services.ts';
import type { TypeUrl } from './model/brand.ts';
import type { Clock } from './model/clock.ts';
import { UNCONSTRAINED } from './model/constraints.ts';
import type { Variant } from './model/resource.ts';
import { type Holder, type Interest, type Transaction, transaction } from './model/transaction.ts';
import type { Upstream, UpstreamSink } from './model/upstream.ts';
import { Views } from './views/views.ts';
import { encodeStatus } from './wire/responses.ts';
import { Code, type GrpcStatus } from './wire/status.ts';

export interface RelayOptions {
  readonly clock: Clock;
  /** ControlPlane.identifier of all responses. */
  readonly controlPlane: string;
  readonly idleMilliseconds: number;
  readonly maxCacheBytes: () => number;
  readonly downstream: Omit<DownstreamServices, 'clock' | 'open' | 'hopeless'>;
  /** Why no new stream is taken now, if so. */
  readonly refuses: (streams: number) => GrpcStatus | undefined;
  readonly events: RelayEvents;
  readonly defer: (run: () => void) => void;
}

/** For metrics and logs. */
export interface RelayEvents {
  ambiguous(
    type: TypeUrl,
    name: string,
    parameters: ReadonlyMap<string, string>,
    choices: readonly Variant[],
  ): void;
  looked(type: TypeUrl, hits: number, misses: number): void;
  evicted(reason: 'size' | 'ttl'): void;
  upstreamChanged(): void;
}

const nobody: Holder = { key: 'nobody', upstream: '', role: 'named' };

/**
 * The data path. Responses flow right: an upstream applies a transaction to the store, the views that can see it take
 * it in, and wake the streams of their subscribers. Interest flows left: a stream selects, its view acquires interest,
 * and the upstream that claims it subscribes.
 */
export class Relay implements UpstreamSink {
  readonly store: Store;
  readonly views: Views;
  readonly server: XdsServer;
  readonly #options: RelayOptions;
  #upstreams: readonly Upstream[] = [];

  constructor(options: RelayOptions) {
    const { clock, events } = options;
    this.#options = options;
    this.store = new Store({
      clock,
      ambiguous: (type, name, parameters, choices) =>
        events.ambiguous(type, name, parameters.entries, choices),
      expiring: (variant) => this.#expire(variant),
    });
    this.views = new Views({
      catalog: this.store,
      interest: { want: (interest) => this.#want(interest), unwant: (interest) => this.#unwant(interest) },
      clock,
      idleMilliseconds: options.idleMilliseconds,
      controlPlane: options.controlPlane,
      looked: (type, hits, misses) => events.looked(type, hits, misses),
      defer: options.defer,
    });
    this.server = new XdsServer(
      {
        ...options.downstream,
        clock,
        open: (type, encoding, selection, access, wake) =>
          this.views.open(type, encoding, selection, access, wake),
        hopeless: (type, selector) => this.#upstreamOf(type, selector)?.state().down === true,
      },
      () => options.refuses(this.server.size),
    );
  }

  get upstreams(): readonly Upstream[] {
    return this.#upstreams;
  }

  /** Before the first stream. In order: the first that claims a name serves it. */
  start(upstreams: readonly Upstream[]): void {
    this.#upstreams = upstreams;
    for (const upstream of upstreams) upstream.start();
  }

  apply(transaction: Transaction): void {
    this.views.publish(this.store.apply(transaction));
    this.#makeRoom();
  }

  changed(): void {
    this.server.upstreamsChanged();
    this.#options.events.upstreamChanged();
  }

  async stop(): Promise<void> {
    this.views.stop();
    await Promise.all(this.#upstreams.map((upstream) => upstream.stop()));
  }

  #upstreamOf(type: TypeUrl, selector: string): Upstream | undefined {
    return this.#upstreams.find((upstream) => upstream.claims(type, selector));
  }

  #want(interest: Interest): void {
    this.store.want(interest);
    const upstream = this.#upstreamOf(interest.type, interest.selector);
    if (upstream !== undefined) upstream.subscribe(interest);
    else this.apply(unclaimed(interest));
  }

  #unwant(interest: Interest): void {
    this.#upstreamOf(interest.type, interest.selector)?.unsubscribe(interest);
    this.store.unwant(interest);
  }

  /** Protocol §8, TTL: the relay runs the upstream's timers. */
  #expire(variant: Variant): void {
    const { clock } = this.#options;
    if (variant.ttl === undefined) return;
    clock.after(variant.ttl.deadline - clock.now(), () => {
      const commit = this.store.expire(variant);
      if (commit === undefined) return;
      this.#options.events.evicted('ttl');
      this.views.publish(commit);
    });
  }

  #makeRoom(): void {
    while (this.store.bytes > this.#options.maxCacheBytes() && this.views.evict()) {
      this.#options.events.evicted('size');
    }
  }
}

/** An authority, type or name that no upstream serves: an error, not silence (protocol §6). */
function unclaimed(interest: Interest): Transaction {
  const { type, selector } = interest;
  const message = `no upstream is configured for ${selector} of ${type}`;
  const fault = {
    name: selector,
    constraints: UNCONSTRAINED,
    code: Code.NOT_FOUND,
    message,
    status: encodeStatus(Code.NOT_FOUND, message),
  };
  return transaction({ holder: nobody, type, faults: [fault], settled: [interest] });
}
