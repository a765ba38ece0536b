import { ADS_SERVICE, knownTypes } from '../model/types.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Peer, ServerStream } from '../wire/server-stream.ts';
import { noPlace, type Refusal } from './admission.ts';
import { Conversations } from './send-order.ts';
import type { DownstreamServices } from './services.ts';
import { type Route, XdsStream } from './xds-stream.ts';

/** Every streaming xDS method (protocol §2), by path. */
export const routes: ReadonlyMap<string, Route> = new Map(
  knownTypes
    .flatMap(({ url, short, service, streamMethod, deltaMethod }): [string, Route][] => [
      [`/${service}/${streamMethod}`, { protocol: 'sotw', type: url, service: short }],
      [`/${service}/${deltaMethod}`, { protocol: 'delta', type: url, service: short }],
    ])
    .filter(([path]) => !path.endsWith('/undefined'))
    .concat([
      [`/${ADS_SERVICE}/StreamAggregatedResources`, { protocol: 'sotw', type: undefined, service: 'ads' }],
      [`/${ADS_SERVICE}/DeltaAggregatedResources`, { protocol: 'delta', type: undefined, service: 'ads' }],
    ]),
);

/** How often silent and stalled clients are looked for, in milliseconds. */
const overdueCheckMs = 1000;

export interface XdsServerOptions {
  /** Why no new stream of this peer is taken now, if so. */
  readonly refuses: (peer: Peer, route: Route) => Refusal | undefined;
  /** Before the numbers that are the ids of streams. */
  readonly streamPrefix: string;
  readonly opened: (stream: XdsStream) => void;
  readonly closed: (stream: XdsStream) => void;
}

/** All downstream streams. */
export class XdsServer {
  readonly #services: DownstreamServices;
  readonly #streams = new Map<string, XdsStream>();
  readonly #options: XdsServerOptions;
  readonly #conversations = new Conversations();
  #lastId = 0;

  constructor(services: DownstreamServices, options: XdsServerOptions) {
    this.#services = services;
    this.#options = options;
    this.#checkOverdue();
  }

  get size(): number {
    return this.#streams.size;
  }

  streams(): Iterable<XdsStream> {
    return this.#streams.values();
  }

  stream(id: string): XdsStream | undefined {
    return this.#streams.get(id);
  }

  /** Takes a stream of a path in `routes`, or says why not. */
  accept(transport: ServerStream, route: Route): GrpcStatus | undefined {
    const { refuses, streamPrefix, opened } = this.#options;
    const refusal = refuses(transport.peer, route);
    if (refusal !== undefined) {
      this.#services.events.rejected(refusal.reason, refusal.logged, { peer: transport.peer });
      return refusal.status;
    }
    const id = `${streamPrefix}${++this.#lastId}`;
    const stream = new XdsStream(id, route, transport, this.#services, this.#conversations, this.#closed);
    this.#streams.set(id, stream);
    opened(stream);
    transport.handle(stream);
    return undefined;
  }

  /** Ends the newest streams: it took more than there are places (limits.max_streams). */
  keepOldest(count: number): void {
    for (const stream of [...this.#streams.values()].slice(count)) stream.failFor(noPlace);
  }

  /** An upstream is down: streams that it alone could answer fail (protocol §8). */
  failUnavailableStreams(): void {
    for (const stream of this.#streams.values()) stream.failIfUnavailable();
  }

  /** Upstreams refuse other parameter sets than before: the streams that have those fail. */
  failRefusedStreams(): void {
    for (const stream of this.#streams.values()) stream.failIfRefused();
  }

  /** Rules have changed: every client is looked at anew. */
  reidentify(): void {
    for (const stream of this.#streams.values()) stream.reidentify();
  }

  readonly #closed = (stream: XdsStream): void => {
    this.#streams.delete(stream.id);
    this.#options.closed(stream);
  };

  #checkOverdue(): void {
    this.#services.clock.after(overdueCheckMs, () => {
      const now = this.#services.clock.now();
      for (const stream of this.#streams.values()) stream.failIfOverdue(now);
      this.#checkOverdue();
    });
  }
}
