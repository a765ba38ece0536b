import { Gauge, type Registry } from 'prom-client';
import type { TypeUrl } from '../model/brand.ts';
import type { TypeLabels } from './type-label.ts';

/** The values of the gauges. They are gathered when metrics are requested, so they cost nothing otherwise. */
export interface Sample {
  readonly connections: number;
  /** Of peers (wire/accounts.ts). */
  readonly accounts: { readonly size: number; readonly waiting: number; readonly held: number };
  readonly streams: readonly {
    readonly transport: 'sotw' | 'delta';
    /** `ads`, or the short name of the type that the service is for. */
    readonly service: string;
    readonly count: number;
  }[];
  readonly types: readonly {
    readonly type: TypeUrl;
    readonly subscriptions: number;
    /** Classes of clients: each has equal subscriptions, parameters and access. */
    readonly classes: number;
    /** Streams that have not answered what they were sent last. */
    readonly unacknowledged: number;
    /** Streams that reject something and have not accepted it since. */
    readonly rejecting: number;
    readonly resources: number;
    readonly variants: number;
  }[];
  readonly upstreams: readonly {
    readonly upstream: string;
    readonly connected: boolean;
    readonly sessions: number;
    /** 0 while current. */
    readonly staleSeconds: number;
    /** Siblings' answers are served in its place. */
    readonly fromSiblings: boolean;
  }[];
  readonly cacheBytes: number;
}

/** The gauges of docs/operations.md. `show` replaces all their values. */
export class SampledGauges {
  readonly #types: TypeLabels;
  readonly #connections: Gauge;
  readonly #accounts: Gauge;
  readonly #waiting: Gauge;
  readonly #held: Gauge;
  readonly #streams: Gauge;
  readonly #subscriptions: Gauge;
  readonly #classes: Gauge;
  readonly #unacknowledged: Gauge;
  readonly #rejecting: Gauge;
  readonly #connected: Gauge;
  readonly #sessions: Gauge;
  readonly #stale: Gauge;
  readonly #fromSiblings: Gauge;
  readonly #resources: Gauge;
  readonly #variants: Gauge;
  readonly #bytes: Gauge;

  constructor(registry: Registry, types: TypeLabels) {
    this.#types = types;
    const gauge = (name: string, help: string, labelNames: readonly string[]): Gauge =>
      new Gauge({ name: `distributary_${name}`, help, labelNames: [...labelNames], registers: [registry] });
    this.#connections = gauge(
      'downstream_connections',
      'Open connections of clients, including those in their TLS handshake',
      [],
    );
    this.#accounts = gauge('peer_accounts', 'Peers that have something open, or an overdrawn account', []);
    this.#waiting = gauge(
      'peer_waiting',
      'Peers that wait for their turn, because their account is used up',
      [],
    );
    this.#held = gauge('peer_held_bytes', 'Bytes that are held for single peers', []);
    this.#streams = gauge('downstream_streams', 'Open xDS streams of clients', ['transport', 'service']);
    this.#subscriptions = gauge('downstream_subscriptions', 'Subscriptions of clients', ['type']);
    this.#classes = gauge('classes', 'Classes of clients, whose subscriptions and parameters are equal', [
      'type',
    ]);
    this.#unacknowledged = gauge(
      'downstream_unacknowledged',
      'Streams of clients that have not answered what they were sent last',
      ['type'],
    );
    this.#rejecting = gauge(
      'downstream_rejecting',
      'Streams of clients that have rejected something and have not accepted it since',
      ['type'],
    );
    this.#connected = gauge('upstream_connected', '1 while connected (files: scanned), else 0', ['upstream']);
    this.#sessions = gauge('upstream_sessions', 'Sessions with a control plane', ['upstream']);
    this.#stale = gauge(
      'upstream_stale_seconds',
      'Seconds since the cached resources of this upstream may be out of date; 0 while they are current',
      ['upstream'],
    );
    this.#fromSiblings = gauge(
      'upstream_from_siblings',
      "1 while siblings' answers are served in place of this upstream's own, else 0",
      ['upstream'],
    );
    this.#resources = gauge('cache_resources', 'Cached resources, whatever their variants', ['type']);
    this.#variants = gauge('cache_variants', 'Cached variants of resources', ['type']);
    this.#bytes = gauge('cache_bytes', 'Bytes of cached resources', []);
  }

  show(sample: Sample): void {
    for (const gauge of [this.#streams, this.#subscriptions, this.#resources, this.#variants]) gauge.reset();
    for (const gauge of [this.#classes, this.#unacknowledged, this.#rejecting]) gauge.reset();
    for (const gauge of [this.#connected, this.#sessions, this.#stale, this.#fromSiblings]) gauge.reset();
    this.#connections.set(sample.connections);
    this.#accounts.set(sample.accounts.size);
    this.#waiting.set(sample.accounts.waiting);
    this.#held.set(sample.accounts.held);
    for (const { transport, service, count } of sample.streams)
      this.#streams.inc({ transport, service }, count);
    for (const { type: url, ...counts } of sample.types) {
      // Added, not set: several unknown types may share a label.
      const type = this.#types.of(url);
      this.#subscriptions.inc({ type }, counts.subscriptions);
      this.#classes.inc({ type }, counts.classes);
      this.#unacknowledged.inc({ type }, counts.unacknowledged);
      this.#rejecting.inc({ type }, counts.rejecting);
      this.#resources.inc({ type }, counts.resources);
      this.#variants.inc({ type }, counts.variants);
    }
    for (const { upstream, connected, sessions, staleSeconds, fromSiblings } of sample.upstreams) {
      this.#connected.set({ upstream }, connected ? 1 : 0);
      this.#sessions.set({ upstream }, sessions);
      this.#stale.set({ upstream }, staleSeconds);
      this.#fromSiblings.set({ upstream }, fromSiblings ? 1 : 0);
    }
    this.#bytes.set(sample.cacheBytes);
  }
}
