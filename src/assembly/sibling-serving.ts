import type { Config } from '../config/config.ts';
import type { DownstreamServices, StreamEvents, StreamLimits } from '../downstream/services.ts';
import { Taps } from '../downstream/taps.ts';
import { XdsServer, type XdsServerOptions } from '../downstream/xds-server.ts';
import type { Route } from '../downstream/xds-stream.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Catalog, Commit } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { Views } from '../views/views.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ServerStream } from '../wire/server-stream.ts';
import { INTERESTS_TYPE, SIBLING_HEADER } from '../wire/via.ts';
import type { Admission } from './admission.ts';
import { InterestList } from './interest-list.ts';
import { SiblingRules } from './sibling-rules.ts';

export interface SiblingServingOptions {
  readonly clock: Clock;
  readonly relay: Relay;
  /** This relay's own id: a name of all replicas is its own name too. */
  readonly relayId: string;
  readonly events: StreamEvents;
  readonly limits: () => StreamLimits;
  readonly refuses: XdsServerOptions['refuses'];
  readonly admission: Pick<Admission, 'streamOpened' | 'streamClosed'>;
  readonly defer: (run: () => void) => void;
}

/**
 * Answers other replicas of this relay, whose control plane is away (docs/adr/0126-siblings.md). They read what is in
 * the cache by views of their own, which have no interest: nothing is asked for them, here or elsewhere, and nothing
 * stays cached for them. So what siblings ask each other never goes on to a third one.
 */
export class SiblingServing {
  readonly #options: SiblingServingOptions;
  readonly #server: XdsServer;
  readonly #views: Views;
  readonly #list: InterestList;
  #rules: SiblingRules;

  constructor(config: Config, options: SiblingServingOptions) {
    this.#options = options;
    this.#rules = new SiblingRules(config);
    const { clock, relay, events, limits, refuses, admission } = options;
    this.#views = this.#viewsOf(relay.store.sides.released);
    this.#list = new InterestList(relay, clock, (catalog) => this.#viewsOf(catalog));
    const services: DownstreamServices = {
      clock,
      taps: new Taps(clock),
      events,
      limits,
      constrained: () => true,
      contentVersions: () => false,
      legacyWildcard: (type) => typeInfo(type).legacyWildcard,
      context: (node, peer) => this.#rules.context(node, peer),
      reapplyRules: (client, peer) => this.#rules.reapplyRules(client, peer),
      open: (type, ...rest) => this.#viewsFor(type).open(type, ...rest),
      prepare: (type, ...rest) => this.#viewsFor(type).prepare(type, ...rest),
      openState: (type, ...rest) => this.#viewsFor(type).openState(type, ...rest),
      isUnavailable: () => false,
      refusal: () => undefined,
    };
    this.#server = new XdsServer(services, {
      refuses,
      streamPrefix: 'sibling-',
      opened: ({ transport }) => admission.streamOpened(transport.peer),
      closed: ({ transport }) => admission.streamClosed(transport.peer),
    });
  }

  /** Other rules are in force. */
  reload(config: Config): void {
    this.#rules = new SiblingRules(config);
    this.#server.reidentify();
  }

  get size(): number {
    return this.#server.size;
  }

  /** Whether a replica of this relay has opened the stream. */
  isFor(stream: Pick<ServerStream, 'header'>): boolean {
    return stream.header(SIBLING_HEADER) !== undefined;
  }

  /** Takes the stream, or says why not. */
  accept(stream: ServerStream, route: Route): GrpcStatus | undefined {
    const { relayId, events } = this.#options;
    if (stream.header(SIBLING_HEADER) === relayId)
      return { code: Code.FAILED_PRECONDITION, message: 'this relay is no sibling of itself' };
    if (this.#rules.admits(stream.peer)) return this.#server.accept(stream, route);
    const message =
      'a sibling is refused: where clients are verified, or parameters are trusted or have values, limits.relay_peers must name it';
    events.rejected('denied', message, { peer: stream.peer });
    return { code: Code.PERMISSION_DENIED, message };
  }

  /** Shows a commit to the siblings that read. */
  publish(commit: Commit): void {
    this.#views.publish(commit);
  }

  stop(): void {
    this.#views.stop();
    this.#list.stop();
  }

  #viewsFor(type: TypeUrl): Views {
    return type === INTERESTS_TYPE ? this.#list.read() : this.#views;
  }

  #viewsOf(catalog: Catalog): Views {
    return new Views({
      catalogs: { released: catalog, canary: catalog },
      interests: {
        subscribe: () => {},
        resubscribe: () => {},
        unsubscribe: () => {},
        markIdle: () => {},
        markActive: () => {},
        contentOf: () => ({ hasContent: false, bytes: 0 }),
      },
      clock: this.#options.clock,
      idleMilliseconds: 0,
      maxCacheBytes: () => Number.MAX_SAFE_INTEGER,
      controlPlane: this.#options.relay.nodeId,
      lookedUp: () => {},
      acknowledged: () => {},
      defer: (run) => this.#options.defer(run),
    });
  }
}
