import { Staleness } from '../../src/admin/staleness.ts';
import type { ClientContext, StreamEvents } from '../../src/downstream/services.ts';
import { routes } from '../../src/downstream/xds-server.ts';
import { LoadServer, type ReportingClient } from '../../src/load/load-server.ts';
import type { Access } from '../../src/model/access.ts';
import { type TypeUrl, typeUrl } from '../../src/model/brand.ts';
import type { Clock } from '../../src/model/clock.ts';
import { LOAD_PATH } from '../../src/model/load.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { ok, type Result } from '../../src/model/result.ts';
import type { CohortClient } from '../../src/model/rollout.ts';
import { typeInfo } from '../../src/model/types.ts';
import type { Log } from '../../src/observe/log.ts';
import { Relay } from '../../src/relay.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { readClientNode } from '../../src/security/client-node.ts';
import { compileParameterRules } from '../../src/security/derive-parameters.ts';
import { AdsUpstream } from '../../src/upstream/ads/ads-upstream.ts';
import { restrict } from '../../src/upstream/ads/stamp.ts';
import {
  originOfFeatures,
  PASSES_VARIANTS,
  UNKNOWN_NAMES,
  USER_AGENT,
} from '../../src/wire/between-relays.ts';
import { Code, type GrpcStatus } from '../../src/wire/grpc-status.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { takeDiscarded } from '../support/discarded.ts';
import { envAndVersion } from '../support/in-memory-relay.ts';
import { parameterSets } from './constraints.ts';
import type { ControlPlane, Wish } from './control-plane.ts';
import type { Ledger } from './ledger.ts';
import type { Call, Connection, Host, Network } from './network.ts';
import { Random } from './random.ts';
import {
  type CheckSays,
  type Operation,
  RolloutHistory,
  type RolloutPlan,
  SimulatedRollout,
} from './rollout.ts';
import { SavedCache, type Saving } from './saved-cache.ts';
import type { Tally } from './tally.ts';
import type { Loss } from './topic.ts';
import { type Note, Violation } from './violation.ts';
import { catalog, type Kind, type World } from './world.ts';

export interface RelayPlan {
  readonly id: string;
  /** Control planes or relays, in order of preference. */
  readonly endpoints: readonly string[];
  readonly protocol: 'DELTA' | 'SOTW';
  readonly variants: 'NATIVE' | 'PER_PARAMETERS';
  readonly idleMilliseconds: number;
  readonly maxCacheBytes: number;
  readonly contentVersions: boolean;
  /** xds.plain_clients: WITH_CONSTRAINTS. */
  readonly constrained: boolean;
  /** Changes wait, and the schedule decides; left out: they do not. */
  readonly gate?: boolean;
  /** Changes wait, and are judged as in a relay; left out: they are not. Not beside `gate`. */
  readonly rollout?: RolloutPlan;
  /** It takes load reports of clients. */
  readonly loads?: boolean;
  /** cache.persistence; left out: none. */
  readonly persistence?: { readonly secrets: boolean };
  /** xds.removal_grace: 0s; left out: 15 s. */
  readonly keepsNothing?: boolean;
  /** Every request of a client counts as a large one; left out: none does. */
  readonly requestsInTurns?: boolean;
}

export interface RelayHostOptions {
  readonly network: Network;
  readonly seed: number;
  /** Everything that can be an endpoint; later relays are added to it. */
  readonly hosts: ReadonlyMap<string, SimulatedHost>;
  readonly note: Note;
  readonly tally: Tally;
  readonly world: World;
  readonly ledger: Ledger;
}

export type SimulatedHost = ControlPlane | RelayHost;

/** How the relay's lower bound of time is told from the outside (see checker.ts). */
export interface Epoch {
  /** Changes whenever what is above is another endpoint. */
  readonly id: string;
  /** No answer can be older than this revision of the world. */
  readonly base: number;
}

const rules = ['env', 'version'].map((key) => ({ key, to: `node.metadata.${key}` }));
const derivation = compileParameterRules(envAndVersion);

interface GateState {
  readonly open: boolean;
  readonly turn: number;
  /** How often clients may have gone back to what was before. */
  readonly discards: number;
  readonly frozen: boolean;
  /** The kinds whose changes wait while it is closed. */
  readonly kinds: readonly Kind[];
  /** Which clients are canaries: those with odd numbers, or the others. */
  readonly canaries: 'odd' | 'even';
}

/** The last two are reloads of `rollout`: other canaries, and other types. */
export type GateTurn = 'release' | 'discard' | 'freeze' | 'unfreeze' | 'canaries' | 'types';

/** The kinds whose changes wait where a relay has a gate. */
const gatedKinds: readonly Kind[] = ['cds', 'lds', 'rds', 'sds'];
/** After a reload. Routes and listeners without clusters would be a mistake: what they lead to could go before they do. */
const fewerKinds: readonly Kind[] = ['cds'];
const typesOf = (kinds: readonly Kind[]): Set<TypeUrl> =>
  new Set(kinds.map((kind) => typeUrl(catalog[kind].url)));

const resourceTimeoutMs = 12_000;
/** Which of them come first matters to clients (rule 6). */
const routed: ReadonlySet<string> = new Set([catalog.cds.url, catalog.rds.url]);

/** A relay, of which all is real but the sockets and the time. */
export class RelayHost implements Host {
  readonly id: string;
  readonly plan: RelayPlan;
  readonly connections = new Set<Connection>();
  reachable: 'up' | 'down' = 'up';
  #gate: GateState = {
    open: true,
    turn: 0,
    discards: 0,
    frozen: false,
    kinds: gatedKinds,
    canaries: 'odd',
  };
  /** Grows with everything that may cost the order of upstream's updates: it starts anew from above. */
  #disturbances = 0;
  readonly #options: RelayHostOptions;
  readonly #saved: SavedCache | undefined;
  #running: Running | undefined;
  /** How often it has begun anew, with nothing or with less than it had. */
  #beginnings = 0;
  /** Nothing that it had was lost when it died. */
  #intact = false;
  #above: { readonly host: SimulatedHost; readonly beginnings: number } | undefined;
  /** How often it has gone to another of them, or to one that has begun anew: what comes back is not what it was. */
  #moves = 0;
  /** Above is another relay than before, or one that has begun anew or gone back meanwhile, since the last quiet. */
  #turned = false;
  /** When, since the last quiet, what it has asked of what is above was asked anew or held up last. */
  #shakenAt = Number.NEGATIVE_INFINITY;
  /** All that it has heard of since it began cold is of this revision or of later ones. */
  #base = Number.POSITIVE_INFINITY;
  /** On which a stream to what is above has begun last. */
  #link: Connection | undefined;
  /** Nothing has come from another relay since a stream began. */
  #isUnanswered = false;
  /** The epoch in which another relay wrote what this one has taken last: its discards come here with that. */
  #heard = '';
  readonly #history: RolloutHistory | undefined;

  constructor(plan: RelayPlan, options: RelayHostOptions) {
    this.id = plan.id;
    this.plan = plan;
    this.#options = options;
    this.#saved = plan.persistence === undefined ? undefined : new SavedCache(plan.persistence.secrets);
    this.#history = plan.rollout && new RolloutHistory(plan.rollout, plan.persistence !== undefined);
    this.start();
  }

  get beginnings(): number {
    return this.#beginnings;
  }

  get relay(): Relay | undefined {
    return this.#running?.relay;
  }

  get epoch(): Epoch {
    return {
      // What is discarded goes back to what was before.
      id: `${this.id}#${this.#beginnings}.${this.#gate.discards + (this.#history?.goings ?? 0)}.${this.#moves}<${this.#heard}`,
      base: Number.isFinite(this.#lowest) ? this.#lowest : 0,
    };
  }

  get #lowest(): number {
    const above = this.#above?.host;
    return above instanceof RelayHost ? Math.min(this.#base, above.#lowest) : this.#base;
  }

  /** The newest revision that what is above can have told of. */
  get known(): number {
    const above = this.#above?.host;
    if (above === undefined) return 0;
    if (!(above instanceof RelayHost)) return above.applied;
    // What it has from before may be newer than all that comes, type by type and stream by stream.
    return this.#turned ? Math.min(above.known, this.epoch.base) : above.known;
  }

  /** The turn of the gate for a client, for rule 7; undefined: nothing of the kind waits for it. */
  turnFor(nodeId: string, kind: Kind): number | undefined {
    const { open, frozen, kinds, turn } = this.#gate;
    if (this.plan.gate !== true || open) return undefined;
    return frozen || (kinds.includes(kind) && !this.isCanary(nodeId)) ? turn : undefined;
  }

  /** Every other client. */
  isCanary(nodeId: string): boolean {
    const odd = /^c.*[13579]$/.test(nodeId);
    return this.plan.gate === true && nodeId.startsWith('c') && odd === (this.#gate.canaries === 'odd');
  }

  /** Grows with everything that is done to the gate, here or above: what is taken back there comes here, too. */
  get turns(): number {
    let all = this.#gate.turn + (this.#history?.turn ?? 0);
    for (const id of this.plan.endpoints) {
      const host = this.#options.hosts.get(id);
      if (host instanceof RelayHost) all += host.turns;
    }
    return all;
  }

  turnGate(does: 'open' | 'close' | GateTurn): void {
    if (this.plan.gate !== true) return;
    const { open, turn, discards, frozen, kinds, canaries } = this.#gate;
    // As `Rollout` does: what is frozen is not released, or half of a change would go out.
    if (does === 'release' && frozen) return;
    this.#gate = {
      open: does === 'close' ? false : open || does === 'open',
      turn: turn + 1,
      discards: discards + (this.#goesBack(does) ? 1 : 0),
      frozen: does === 'freeze' ? !open : frozen && does !== 'unfreeze' && does !== 'open',
      kinds: does === 'types' ? (kinds === gatedKinds ? fewerKinds : gatedKinds) : kinds,
      canaries: does === 'canaries' ? (canaries === 'odd' ? 'even' : 'odd') : canaries,
    };
    // What is discarded comes back name by name: canaries may see a part of upstream's change without the rest.
    if (does === 'discard') this.#disturbances++;
    const store = this.relay?.store;
    if (store === undefined) return;
    const gate = store.held;
    if (gate.size > 0) this.#options.tally.count(`${does} of what waits`);
    if (does === 'open') {
      gate.unfreeze();
      gate.release();
      gate.gatedTypes(new Set());
      takeDiscarded(store);
    } else if (does === 'canaries') this.relay?.server.reidentify();
    else if (does === 'types' || does === 'close') {
      if (!this.#gate.open) gate.gatedTypes(typesOf(this.#gate.kinds));
    } else if (!open) gate[does]();
  }

  /** What was frozen may be newer than what is above says now, if that has gone back meanwhile. */
  #goesBack(does: 'open' | 'close' | GateTurn): boolean {
    if (does === 'discard' || does === 'canaries') return true;
    const above = this.#above?.host;
    const ends = does === 'open' || does === 'unfreeze' || does === 'release';
    return ends && above instanceof RelayHost && above.#hasGoneBack;
  }

  get #hasGoneBack(): boolean {
    const above = this.#above?.host;
    if (this.#gate.discards + (this.#history?.goings ?? 0) > 0) return true;
    return above instanceof RelayHost && above.#hasGoneBack;
  }

  get rollout(): SimulatedRollout | undefined {
    return this.#running?.rollout;
  }

  /** What its checks say from now on. */
  checksSay(says: CheckSays): void {
    if (this.#history !== undefined) this.#history.says = says;
  }

  operate(does: Operation): void {
    const { rollout, loads } = this.#running ?? {};
    // What is discarded comes back name by name: canaries may see a part of upstream's change without the rest.
    if (does === 'discard') this.#disturbances++;
    if (does === 'reload') loads?.reload();
    rollout?.operate(does);
  }

  /** Everybody gets what upstream says. */
  openRollout(): void {
    const { rollout, relay } = this.#running ?? {};
    if (rollout === undefined || relay === undefined) return;
    this.#disturbances++;
    rollout.open(() => takeDiscarded(relay.store));
  }

  get disturbances(): number {
    const above = this.#above?.host;
    return this.#disturbances + (above instanceof RelayHost ? above.disturbances : 0);
  }

  /**
   * Below a relay whose own control plane was asked anew: that waits for an answer from then on, and this one, to which it
   * says nothing meanwhile, gives up before (protocol §3.9, resource_timeout). Over delta it has waited since before that.
   */
  hasty(kind: Kind): boolean {
    const { hosts, network } = this.#options;
    return this.plan.endpoints.some((id) => {
      const host = hosts.get(id);
      if (!(host instanceof RelayHost)) return false;
      if (this.plan.protocol === 'SOTW' && host.#shakenAt > 0 && catalog[kind].full) return true;
      const isLate =
        this.plan.protocol === 'DELTA' && network.loop.now() - host.#shakenAt < resourceTimeoutMs;
      return isLate || host.hasty(kind);
    });
  }

  get belowRelay(): boolean {
    return this.#above?.host instanceof RelayHost;
  }

  /** SotW on the way down: of what is named it cannot say that it is gone (protocol §3.9). */
  loss(kind: Kind, byName: boolean): Loss {
    if (catalog[kind].full) return byName && this.#excuses ? 'deletions' : 'nothing';
    for (const id of this.plan.endpoints) {
      const host = this.#options.hosts.get(id);
      if (host instanceof RelayHost && host.loss(kind, byName) !== 'nothing') return 'choices';
    }
    if (this.plan.protocol === 'DELTA') return 'nothing';
    if (this.plan.variants === 'NATIVE') return 'choices';
    return byName ? 'deletions' : 'nothing';
  }

  /** SotW on the way down: a name that lacks, and of which an error says that it is not there, is kept (protocol §8). */
  get #excuses(): boolean {
    return this.plan.endpoints.some((id) => {
      const host = this.#options.hosts.get(id);
      if (host instanceof RelayHost && host.#excuses) return true;
      return this.plan.protocol === 'SOTW' && host?.tellsErrors === true;
    });
  }

  /**
   * At a gate, a wildcard gets what is released of a name that comes anew (docs/adr/0100). That is the content before, if
   * it was kept for those who ask by name: because a removal waits, or because upstream has not told them of it (see
   * `loss`).
   */
  get returnsKept(): boolean {
    if (this.plan.gate === true || this.plan.rollout !== undefined) return true;
    return this.plan.endpoints.some((id) => {
      const host = this.#options.hosts.get(id);
      return host instanceof RelayHost && host.returnsKept;
    });
  }

  /** Errors of what is not there come from above. */
  get tellsErrors(): boolean {
    return this.plan.endpoints.some((id) => this.#options.hosts.get(id)?.tellsErrors === true);
  }

  /**
   * To the session of these parameters a control plane that is silent where nothing is there has said nothing since a
   * stream began, or an error in its place: all that it was told of is current, and of what is gone it was not told. What
   * is held from before, or restored from disk, stays (protocol §3.9).
   */
  hearsNothing(wish: Wish): boolean {
    const above = this.#above?.host;
    if (above === undefined || this.#link === undefined) return false;
    if (above instanceof RelayHost) return above.hearsNothing(wish);
    const { protocol, tellsMissing } = above.habits;
    if (protocol !== 'DELTA' || tellsMissing) return false;
    return above.isSilent(this.#link, this.plan.variants === 'NATIVE' ? '' : wish.form.key, wish);
  }

  /**
   * Of a relay above a session asks for clusters and routes on two streams (protocol §5b): one may be ahead of the other, and
   * it keeps the order of types only on each. Names go on on theirs when the wildcard that was there before has ended.
   */
  get unordered(): boolean {
    const above = this.#above?.host;
    if (!(above instanceof RelayHost)) return false;
    if (above.unordered) return true;
    const ofStreams = [...(above.relay?.server.values() ?? [])].filter(({ types }) =>
      types.some(({ info, selection }) => routed.has(info.url) && selection.size > 0),
    );
    const sessions = ofStreams.flatMap(({ client }) => client?.nodeId ?? []);
    const own = sessions.filter((id) => id.split('~', 1)[0] === this.id);
    return new Set(own).size < own.length;
  }

  /** Whether all that it had answered is served after a restart, also where nothing above can be reached. */
  remembers(kind: Kind): boolean {
    const { persistence, idleMilliseconds, maxCacheBytes } = this.plan;
    if (persistence === undefined || (kind === 'sds' && !persistence.secrets)) return false;
    return idleMilliseconds >= 5000 && maxCacheBytes > 1_000_000;
  }

  /** Cold, unless it has something saved: then it goes on from there, and no answer is older than before. */
  start(): void {
    const { tally } = this.#options;
    const cold = this.#saved?.empty !== false;
    if (this.#beginnings > 0) tally.count(cold ? 'cold restart' : 'restart with a saved cache');
    if (this.#beginnings > 0) this.#shakenAt = this.#options.network.loop.now();
    if (cold) {
      this.#base = Number.POSITIVE_INFINITY;
      this.#above = undefined;
    }
    // On the disk is what everybody had. That may be from before a discard above, which canaries had heard of.
    if (cold || this.#history !== undefined) this.#heard = '';
    if (cold || !this.#intact) this.#beginnings++;
    this.reachable = 'up';
    if (this.plan.gate === true) this.#gate = { ...this.#gate, turn: this.#gate.turn + 1, frozen: false };
    this.#running = new Running(
      this.plan,
      this.#options,
      this.#saved,
      this.#history,
      (nodeId) => this.isCanary(nodeId),
      (connection) => this.#watch(connection),
    );
    if (this.plan.gate === true && !this.#gate.open)
      this.#running.relay.gate.gatedTypes(typesOf(this.#gate.kinds));
  }

  /** Like kill -9: nothing of it runs any more. `gracefully`: like SIGTERM, all that it knows is saved before. */
  crash(gracefully: boolean): void {
    this.reachable = 'down';
    if (gracefully) this.#running?.saving?.finish();
    // What is released is saved. A canary that had more goes back to it.
    const heldAny = Iterator.from(this.relay?.gate.pending ?? []).some(() => true);
    this.#intact = this.#running?.saving?.clean === true && !heldAny;
    this.#running?.die();
    this.#running = undefined;
    this.#history?.died();
    this.#options.ledger.died(this.id);
    for (const connection of [...this.connections]) connection.kill('the relay crashed');
  }

  /** In quiet, what it has is current, whatever it has been through. */
  settle(): void {
    this.#turned = false;
    this.#shakenAt = Number.NEGATIVE_INFINITY;
    if (this.plan.endpoints.length > 1) return; // silent ones are tried in turn
    if (this.#running?.stale === true) throw new Violation(4, `${this.id} takes what it has for stale`);
  }

  /** Without anything above that answers. */
  checkStale(): void {
    if (this.#running?.stale === false) throw new Violation(4, `${this.id} takes what it has for current`);
  }

  /** The connection to what is above breaks. */
  cutLink(): void {
    for (const connection of this.#running?.links ?? []) connection.kill('cut');
  }

  stallLink(milliseconds: number): void {
    this.#shakenAt = this.#options.network.loop.now();
    for (const connection of this.#running?.links ?? []) connection.stall(milliseconds);
  }

  /**
   * What clients have reported goes up before it ends; true: something may be on its way. As `Distributary` does it: the
   * streams of all clients end first, and no others begin.
   */
  drain(): boolean {
    const loads = this.#running?.loads;
    if (this.#running === undefined || loads === undefined) return false;
    this.#running.draining = true;
    for (const connection of [...this.connections]) connection.cut(LOAD_PATH, 'the relay drains');
    this.#options.ledger.drains(this.id, () => void loads.drain());
    return true;
  }

  accept(call: Call): void {
    if (call.path === LOAD_PATH) {
      this.#acceptLoad(call);
      return;
    }
    const route = routes.get(call.path);
    if (route === undefined || this.#running === undefined) throw new Error(`no route ${call.path}`);
    const refusal = this.#running.relay.server.accept(call, route);
    if (refusal !== undefined) call.end(refusal);
  }

  #acceptLoad(call: Call): void {
    const { loads, draining } = this.#running ?? {};
    if (loads === undefined || draining === true) {
      const code = draining === true ? Code.UNAVAILABLE : Code.UNIMPLEMENTED;
      call.handle({ message: () => {}, ended: () => {}, drained: () => {}, closed: () => {} });
      call.end({ code, message: 'no load reports' });
      return;
    }
    const { ledger, hosts } = this.#options;
    const isNative = this.plan.variants === 'NATIVE';
    const isRelay = hosts.has(call.connection.name.split('→', 1)[0] ?? '');
    call.taken = (bytes) => {
      ledger.received(this.id, call, bytes, isNative);
      if (isRelay) ledger.arrived(bytes);
    };
    loads.accept(call);
  }

  #watch(connection: Connection): void {
    const host = this.#options.hosts.get(connection.host.id);
    if (host === undefined) return;
    const beginnings = host instanceof RelayHost ? host.beginnings : 0;
    connection.stirred = (begins) => {
      this.#disturbances++;
      if (!begins) {
        this.#shakenAt = this.#options.network.loop.now();
        return; // what it leaves for another one may end later
      }
      this.#link = connection;
      this.#isUnanswered = true;
      const same = this.#above?.host === host && this.#above.beginnings === beginnings;
      if (this.#above !== undefined && this.#above.host !== host) this.#options.tally.count('failover');
      // The first after a beginning counts too: until then it knew nothing.
      if (!same) {
        this.#turned = this.#above !== undefined;
        this.#moves++;
        if (!(host instanceof RelayHost)) this.#base = Math.min(this.#base, host.applied);
        this.#above = { host, beginnings };
      }
    };
    if (!(host instanceof RelayHost)) return;
    connection.spoken = () => {
      const { id } = host.epoch;
      return () => {
        // It has gone back while nobody heard it: what was held from before may stay until it has answered all (protocol §5b.5).
        if (this.#isUnanswered && this.#heard !== '' && this.#heard !== id) this.#turned = true;
        this.#isUnanswered = false;
        this.#heard = id;
        this.#base = Math.min(this.#base, host.#lowest);
      };
    };
  }
}

/** One incarnation. */
class Running {
  readonly relay: Relay;
  readonly links = new Set<Connection>();
  readonly saving: Saving | undefined;
  readonly rollout: SimulatedRollout | undefined;
  readonly loads: LoadServer | undefined;
  /** It ends, and takes no streams of reports any more. */
  draining = false;
  readonly #staleness: Staleness;
  #dead = false;
  readonly #deferred: (() => void)[] = [];

  constructor(
    plan: RelayPlan,
    { network, seed, hosts, note, tally, world, ledger }: RelayHostOptions,
    saved: SavedCache | undefined,
    history: RolloutHistory | undefined,
    isCanary: (nodeId: string) => boolean,
    connecting: (connection: Connection) => void,
  ) {
    const accessOf = (client: CohortClient): Access => {
      const cohort = this.rollout?.cohortOf(client) ?? (isCanary(client.nodeKey) ? 'canary' : 'released');
      return cohort === 'canary' ? ALLOW_ALL.ofCanaries : ALLOW_ALL;
    };
    const contextOf = (bytes: Buffer, from: Peer): Result<ClientContext, GrpcStatus> => {
      const node = readClientNode(bytes);
      if (!node.ok) return { ok: false, error: { code: 3, message: node.error } };
      const derived = derivation.of(node.value, from);
      const { id: nodeId, place } = node.value;
      const parameters = derived.for(undefined);
      const classKey = history === undefined ? '' : parameters.key;
      return ok({
        selectionGroup: node.value.clientFeatures.includes(PASSES_VARIANTS) ? {} : derived,
        nodeId,
        nodeKey: nodeId,
        place,
        classKey,
        mayBeCanary: true,
        cluster: node.value.cluster,
        wrapped: node.value.clientFeatures.includes('xds.config.resource-in-sotw'),
        ttl: node.value.clientFeatures.includes('xds.config.supports-resource-ttl'),
        access: accessOf({ nodeKey: nodeId, place, classKey, parameters, address: from.address }),
        exempt: false,
        relay: node.value.userAgentName === USER_AGENT,
        isEnvoy: node.value.userAgentName === 'envoy',
        unknownNames: node.value.clientFeatures.includes(UNKNOWN_NAMES),
        passesVariants: node.value.clientFeatures.includes(PASSES_VARIANTS),
        loadOrigin: originOfFeatures(node.value.clientFeatures),
        derived: (authority) => derived.for(authority),
        merged: (own, authority) => derived.merge(own, authority),
      });
    };
    const clock: Clock = {
      now: () => network.loop.now(),
      monotonic: () => network.loop.monotonic(),
      after: (milliseconds, run) =>
        network.loop.after(milliseconds, () => {
          if (!this.#dead) run();
        }),
    };
    const streamEvents: StreamEvents = {
      request: () => undefined,
      response: () => undefined,
      coalesced: () => undefined,
      overdue: () => undefined,
      rejected: (reason) => note(() => `${plan.id} refuses: ${reason}`),
      nack: () => undefined,
      touched: (stream, isOfCanary) => this.rollout?.touched(stream, isOfCanary),
    };
    this.saving = saved?.open(clock);
    this.#staleness = new Staleness(() => this.relay.upstreams);
    this.relay = new Relay({
      clock,
      journal: this.saving?.journal,
      controlPlane: plan.id,
      idleMilliseconds: plan.idleMilliseconds,
      maxCacheBytes: () => plan.maxCacheBytes,
      streams: {
        opened: () => {},
        changing: (stream) => this.rollout?.changing(stream),
        closed: (stream) => this.rollout?.closed(stream),
      },
      published: (commit) => this.rollout?.published(commit),
      defer: (run) => this.#defer(network, run),
      events: {
        ambiguous: () => tally.count('ambiguous match'),
        lookedUp: () => undefined,
        answered: () => undefined,
        evicted: (reason) => tally.count(`eviction by ${reason}`),
        upstreamChanged: () => this.#staleness.observe(),
      },
      downstream: {
        events: streamEvents,
        limits: () => ({
          maxSubscriptions: 100_000,
          changesPerSecond: 1_000_000,
          stalledMilliseconds: 30_000,
          removalGraceMilliseconds: plan.keepsNothing === true ? 0 : 15_000,
          // Its clients may subscribe to nothing for as long as they like.
          firstRequestMilliseconds: Number.POSITIVE_INFINITY,
        }),
        ...(plan.requestsInTurns === true ? { largeRequestBytes: 1 } : {}),
        constrained: () => plan.constrained,
        contentVersions: () => plan.contentVersions,
        legacyWildcard: (url) => typeInfo(url).legacyWildcard,
        reapplyRules: (client, { address }) => ({
          ...client,
          access: accessOf({ ...client, parameters: client.derived(undefined), address }),
        }),
        context: contextOf,
      },
    });
    const isPlain =
      plan.endpoints.length === 1 && plan.endpoints.every((id) => !(hosts.get(id) instanceof RelayHost));
    // Over SotW what comes for some clients replaces what matches others (protocol §5.5): they have the same again later.
    const isUndecided = (kind: Kind, name: string): boolean =>
      !catalog[kind].full &&
      plan.protocol === 'SOTW' &&
      plan.variants === 'NATIVE' &&
      parameterSets.some((form) => world.matching(kind, name, form, world.revision).length > 1);
    const { id } = plan;
    const { relay } = this;
    this.rollout =
      history &&
      new SimulatedRollout({ id, clock, relay, history, world, isPlain, isUndecided, tally, note });
    const random = new Random(seed, 'jitter', plan.id);
    const log = logTo((line) => note(() => `${plan.id}: ${line}`));
    const upstream = new AdsUpstream(
      {
        name: 'up',
        claims: { authorities: [], types: [], names: [] },
        endpoints: plan.endpoints.map((path) => ({ kind: 'unix', path })),
        protocol: plan.protocol,
        variants: plan.variants,
        transport: network.dialer(plan.id, hosts, (connection) => {
          this.links.add(connection);
          connecting(connection);
        }),
        tls: undefined,
        connectTimeoutMs: 2000,
        resourceTimeoutMs,
        keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
        backoff: { initialMs: 200, maxMs: 3000 },
        failbackAfterMs: 3000,
        rules,
        node: {
          id: plan.id,
          cluster: 'relays',
          metadata: {},
          locality: { region: '', zone: '', subZone: '' },
        },
        version: 'simulated',
        via: () => plan.id,
        maxConstraintDepth: 64,
        entriesPerTurn: 2,
        maxSessions: () => 1000,
        clock,
        random: () => random.next(),
        log,
        metrics: {
          accepted: () => undefined,
          rejected: () => note(() => `${plan.id} rejects a response`),
          reconnect: () => undefined,
          streamEnd: () => undefined,
          refused: () => undefined,
        },
      },
      this.relay,
    );
    if (plan.loads === true) this.loads = this.#loadServer(plan, clock, upstream, ledger, contextOf);
    const restored = this.saving?.load('up');
    if (restored !== undefined) this.#staleness.restore(new Map([['up', network.loop.now()]]));
    this.relay.start([upstream], restored);
    this.saving?.attach(this.relay.store);
  }

  /** As src/load-reports.ts makes it for one upstream. */
  #loadServer(
    plan: RelayPlan,
    clock: Clock,
    upstream: AdsUpstream,
    ledger: Ledger,
    contextOf: (bytes: Buffer, from: Peer) => Result<ClientContext, GrpcStatus>,
  ): LoadServer {
    const watched = ledger.watch(plan.id, upstream);
    const clientOf = (client: ClientContext, stream: string): ReportingClient => {
      const given = client.derived(undefined);
      const parameters = plan.variants === 'NATIVE' ? NO_PARAMETERS : restrict(['env', 'version'], given);
      const { classKey } = client;
      return {
        of: undefined,
        origin: client.loadOrigin,
        mayKnow: undefined,
        targets: () => [{ upstream: 'up', parameters }],
        reported: ({ success, error }, milliseconds) => {
          const isFirst = milliseconds === 0;
          this.rollout?.reported(client.nodeId, stream, error, isFirst || success + error > 0);
          if (isFirst) return;
          this.rollout?.traffic.add({
            stream,
            node: client.nodeKey,
            classKey,
            classLabel: classKey,
            origin: client.loadOrigin,
            requests: success + error,
            errors: error,
            milliseconds,
          });
        },
        left: () => this.rollout?.traffic.left(stream),
        byNewRules: () => clientOf(client, stream),
      };
    };
    return new LoadServer({
      clock,
      identify: (node, peer, stream) => {
        const client = contextOf(node, peer);
        return client.ok ? ok(clientOf(client.value, stream)) : client;
      },
      limits: () => ({
        maxLoadReportClusters: 10_000,
        firstRequestTimeoutMs: 30_000,
        stalledTimeoutMs: 30_000,
      }),
      maxSessions: () => ({ all: 10_000, ofPeer: 5000 }),
      ownIntervalMs: () => this.rollout?.traffic.intervalMs,
      upstream: () => watched,
      holdsBack: () => this.relay.gate.pending.length > 0,
      events: {
        rejected: () => undefined,
        sent: () => ({ inc: () => undefined }),
        left: () => undefined,
        malformed: () => undefined,
      },
    });
  }

  get stale(): boolean {
    return this.#staleness.sinceOf('up') !== undefined;
  }

  die(): void {
    this.#dead = true;
    this.rollout?.stop();
    for (const connection of this.links) connection.close();
  }

  /** All that was put off runs together a moment later: how it is cut into slices depends on real time. */
  #defer({ loop }: Network, run: () => void): void {
    if (this.#deferred.push(run) > 1) return;
    loop.after(0, () => {
      for (let next = this.#deferred[0]; next !== undefined; next = this.#deferred[0]) {
        if (!this.#dead) next();
        this.#deferred.shift();
      }
    });
  }
}

function logTo(write: (line: string) => void): Log {
  const line =
    (level: string) =>
    (message: string): void =>
      write(`${level} ${message}`);
  return {
    debug: () => undefined,
    info: line('info'),
    warn: line('warn'),
    error: line('error'),
    child: () => logTo(write),
  };
}
