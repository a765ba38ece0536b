import { Store } from './cache/store.ts';
import { ClientRules } from './clients.ts';
import type { Config } from './config/config.ts';
import { admitsOnlyRelays } from './config/warnings.ts';
import type { DownstreamServices } from './downstream/services.ts';
import { Taps } from './downstream/taps.ts';
import { type Route, XdsServer } from './downstream/xds-server.ts';
import { type ResourceName, resourceName, type TypeUrl } from './model/brand.ts';
import { type Catalog, type Commit, isVariant } from './model/catalog.ts';
import type { Clock, Timer } from './model/clock.ts';
import { UNCONSTRAINED } from './model/constraints.ts';
import { onceFor } from './model/maps.ts';
import { isCollection } from './model/selection.ts';
import { type Pace, TimeSlices } from './model/time-slices.ts';
import { type Holder, type Interest, type Put, transaction } from './model/transaction.ts';
import { typeInfo } from './model/types.ts';
import type { Relay } from './relay.ts';
import { Views } from './views/views.ts';
import { ALL_INTERESTS, INTERESTS_TYPE, nameOfInterest, SIBLING_HEADER } from './wire/between-relays.ts';
import { Code, type GrpcStatus } from './wire/grpc-status.ts';
import type { Peer, ServerStream } from './wire/server-stream.ts';

/** What answering siblings needs of a process. */
interface SiblingParts extends Pick<DownstreamServices, 'clock' | 'events' | 'limits' | 'places'> {
  readonly relay: Relay;
  /** This relay's own id: a name of all replicas is its own name too. */
  readonly relayId: string;
  readonly defer: (run: () => void) => void;
}

/**
 * Answers other replicas of this relay, whose control plane is away (docs/adr/0126-siblings.md). They read what is in
 * the cache by views of their own, which have no interest: nothing is asked for them, here or elsewhere, and nothing
 * stays cached for them. So what siblings ask each other never goes on to a third one.
 */
export class SiblingServing {
  readonly #parts: SiblingParts;
  readonly server: XdsServer;
  readonly #views: Views;
  readonly #list: InterestList;
  #rules: SiblingRules;

  constructor(config: Config, parts: SiblingParts) {
    this.#parts = parts;
    this.#rules = new SiblingRules(config);
    const { clock, relay, events, limits, places } = parts;
    this.#views = this.#viewsOf(relay.store.cohorts.released);
    this.#list = new InterestList(relay, clock, (catalog) => this.#viewsOf(catalog));
    const services: DownstreamServices = {
      clock,
      taps: new Taps(clock),
      events,
      limits,
      places,
      constrained: () => true,
      contentVersions: () => false,
      legacyWildcard: (type) => typeInfo(type).legacyWildcard,
      context: (node, peer) => this.#rules.context(node, peer),
      reapplyRules: (client, peer) => this.#rules.reapplyRules(client, peer),
      open: (type, ...rest) => this.#viewsFor(type).open(type, ...rest),
      prepare: (type, ...rest) => this.#viewsFor(type).prepare(type, ...rest),
      isUnavailable: () => false,
      refusal: () => undefined,
    };
    const nobody = { opened: () => {}, changing: () => {}, closed: () => {} };
    this.server = new XdsServer(services, nobody, 'sibling-');
  }

  /** Other rules are in force. */
  reload(config: Config): void {
    this.#rules = new SiblingRules(config);
    this.server.reidentify();
  }

  /** Whether a replica of this relay has opened the stream. */
  isFor(stream: Pick<ServerStream, 'header'>): boolean {
    return stream.header(SIBLING_HEADER) !== undefined;
  }

  /** Takes the stream, or says why not. */
  accept(stream: ServerStream, route: Route): GrpcStatus | undefined {
    const { relayId, events } = this.#parts;
    if (stream.header(SIBLING_HEADER) === relayId)
      return { code: Code.FAILED_PRECONDITION, message: 'this relay is not a sibling of itself' };
    if (this.#rules.admits(stream.peer)) return this.server.accept(stream, route);
    const message =
      'a sibling is refused: where clients are verified, or parameters are trusted or have values, limits.relay_peers must name it';
    events.rejected('denied', message, stream.peer);
    return { code: Code.PERMISSION_DENIED, message };
  }

  /** Shows a commit to the siblings that read. */
  publish(commit: Commit): void {
    this.#views.publish(commit);
  }

  stop(): void {
    this.#views.interests.stop();
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
      clock: this.#parts.clock,
      idleMilliseconds: 0,
      maxCacheBytes: () => Number.MAX_SAFE_INTEGER,
      controlPlane: this.#parts.relay.nodeId,
      lookedUp: () => {},
      answered: () => {},
      defer: (run) => this.#parts.defer(run),
    });
  }
}

/** How siblings are read by the rules in force. They send the parameters that were derived for their clients. */
class SiblingRules extends ClientRules {
  readonly #onlyRelays: boolean;

  constructor(config: Config) {
    super({ ...config, parameters: [] });
    this.#onlyRelays = admitsOnlyRelays(config);
  }

  /** Whether this peer may be a sibling, which chooses parameters freely and learns what others ask for. */
  admits(peer: Peer): boolean {
    return !this.#onlyRelays || this.isRelay(peer);
  }
}

/** How long after a look at all interests the next one begins, while a sibling reads the list. Milliseconds. */
const listIntervalMs = 1000;

const LISTED: Holder = { key: 'interests', upstream: '', role: 'wildcard' };

/** What this relay can answer, as resources: so a new replica learns what it will be asked for. */
class InterestList {
  readonly #relay: Relay;
  readonly #clock: Clock;
  readonly #store: Store;
  readonly #views: Views;
  readonly #slices: TimeSlices;
  /** What is on the list. */
  #listed: ReadonlySet<ResourceName> = new Set();
  #renewal: 'none' | 'looking' | Timer = 'none';
  #isStopped = false;

  constructor(relay: Relay, clock: Clock, viewsOf: (catalog: Catalog) => Views) {
    this.#relay = relay;
    this.#clock = clock;
    this.#slices = new TimeSlices(clock);
    this.#store = new Store({ clock, ambiguous: () => {}, expiring: () => {} });
    this.#store.addInterest(ALL_INTERESTS);
    this.#views = viewsOf(this.#store);
  }

  /** The views of the list, which is kept up to date while somebody reads it. */
  read(): Views {
    if (this.#renewal === 'none') void this.#renew();
    return this.#views;
  }

  stop(): void {
    this.#isStopped = true;
    if (typeof this.#renewal === 'object') this.#renewal.cancel();
    this.#views.interests.stop();
  }

  async #renew(): Promise<void> {
    this.#renewal = 'looking';
    const found = await this.#slices.run((pace) => this.#look(pace));
    if (this.#isStopped) return;
    this.#publish(found);
    this.#renewal = this.#clock.after(listIntervalMs, () => {
      this.#renewal = 'none';
      if (!this.#views.all()[Symbol.iterator]().next().done) void this.#renew();
    });
  }

  /** In slices: clients of this relay must not wait for its siblings. */
  async #look(pace: Pace): Promise<ReadonlySet<ResourceName>> {
    const found = new Set<ResourceName>();
    for (const interest of this.#answerable()) {
      await pace.yieldIfDue();
      found.add(nameOf(interest));
    }
    return found;
  }

  /** Only what has changed. */
  #publish(found: ReadonlySet<ResourceName>): void {
    // A relay without anything is no better than none: who asks it hears nothing.
    if (found.size === 0) return;
    const puts = Array.from(found.difference(this.#listed), listed);
    const gone = this.#listed.difference(found);
    const removals = Array.from(gone, (name) => ({ name, constraints: UNCONSTRAINED }));
    this.#listed = found;
    if (puts.length === 0 && removals.length === 0) return;
    const changes = { puts, removals, resolved: [ALL_INTERESTS] };
    this.#views.publish(this.#store.apply(transaction({ holder: LISTED, type: INTERESTS_TYPE, ...changes })));
  }

  *#answerable(): Iterable<Interest> {
    const { released } = this.#relay.store.cohorts;
    for (const interest of this.#relay.views.interests.all()) {
      const { type, selector, parameters } = interest;
      const isAnswered = isCollection(selector)
        ? released.isResolved(interest)
        : isVariant(released.peek(type, selector, parameters));
      if (isAnswered) yield interest;
    }
  }
}

/** Each second most are the same. */
const nameOf = onceFor((interest: Interest) => resourceName(nameOfInterest(interest)));

function listed(name: ResourceName): Put {
  return {
    name,
    constraints: UNCONSTRAINED,
    version: '1',
    any: anyOfNothing,
    aliases: [],
    ttlMilliseconds: undefined,
    doNotCache: false,
    metadata: undefined,
  };
}

/** An Any of this type without a value: field 1, the type URL. */
const anyOfNothing = Buffer.concat([Buffer.from([0x0a, INTERESTS_TYPE.length]), Buffer.from(INTERESTS_TYPE)]);
