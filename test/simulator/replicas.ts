import { setImmediate as turn } from 'node:timers/promises';
import { parseConfig } from '../../src/config/load.ts';
import type { StreamEvents } from '../../src/downstream/services.ts';
import { routes } from '../../src/downstream/xds-server.ts';
import { isVariant } from '../../src/model/catalog.ts';
import { type Interest, transaction } from '../../src/model/transaction.ts';
import type { Upstream, UpstreamSink, UpstreamState } from '../../src/model/upstream.ts';
import { createLog } from '../../src/observe/log.ts';
import { Relay } from '../../src/relay.ts';
import { SiblingServing } from '../../src/sibling-serving.ts';
import { AdsUpstream } from '../../src/upstream/ads/ads-upstream.ts';
import { CLAIMS_EVERYTHING } from '../../src/upstream/claims.ts';
import { Siblings } from '../../src/upstream/siblings.ts';
import { interest } from '../cache/persistence/support.ts';
import { put, ScriptedUpstream, when } from '../support/in-memory-relay.ts';
import { EventLoop } from './event-loop.ts';
import { type Call, type Connection, type Host, Network } from './network.ts';
import { Random } from './random.ts';

export const envs = ['prod', 'test'] as const;
const names = ['a', 'b', 'c', 'd'];
/** One step of the schedule, in milliseconds. */
const stepMs = 50;

/** What clients of an environment ask. */
const asked = (env: string): readonly Interest[] => [
  interest('cds', '*', { env }),
  interest('eds', 'a', { env }),
  interest('eds', 'b', { env }),
];

const nothing = (): void => {};
const streamEvents: StreamEvents = {
  request: nothing,
  response: nothing,
  coalesced: nothing,
  overdue: nothing,
  rejected: nothing,
  nack: nothing,
  touched: nothing,
};

function relayConfig() {
  const parsed = parseConfig(
    'upstreams: [{ name: central, ads: { endpoints: ["cp:1"] } }]',
    'relay.yaml',
    {},
  );
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.error));
  return parsed.value;
}

const config = relayConfig();

/** The control plane: all replicas have the same, or none of them reaches it. */
class Plane {
  readonly contents = new Map(names.map((name) => [name, '1']));
  readonly links = new Set<PlaneUpstream>();
  isUp = true;

  set(isUp: boolean): void {
    this.isUp = isUp;
    for (const link of this.links) link.follow();
  }
}

/** One replica's upstream at the control plane. It answers after a while; siblings are asked as `AdsUpstream` does it. */
class PlaneUpstream extends ScriptedUpstream {
  override readonly name = 'central';
  readonly #plane: Plane;
  readonly #sink: UpstreamSink;
  readonly #loop: EventLoop;
  readonly #siblings: Siblings;
  #stale = true;
  #ended = false;

  constructor(plane: Plane, sink: UpstreamSink, loop: EventLoop, siblings: Siblings) {
    super();
    this.#siblings = siblings;
    this.#plane = plane;
    this.#sink = sink;
    this.#loop = loop;
    plane.links.add(this);
  }

  override state(): UpstreamState {
    return this.#siblings.joined(this.#own());
  }

  #own(): UpstreamState {
    const { isUp } = this.#plane;
    return {
      ...super.state(),
      connected: isUp,
      everConnected: !this.#stale,
      down: !isUp,
      staleSince: this.#stale ? 1 : undefined,
    };
  }

  override subscribe(wanted: Interest): void {
    super.subscribe(wanted);
    if (this.#plane.isUp) this.#loop.after(20, () => this.#answer(wanted));
    this.#siblings.subscribe(wanted);
  }

  override unsubscribe(wanted: Interest): void {
    this.#siblings.unsubscribe(wanted);
    super.unsubscribe(wanted);
  }

  override start(): void {
    this.#loop.after(5, () => this.follow());
  }

  override stop(): Promise<void> {
    this.#ended = true;
    this.#siblings.stop();
    this.#plane.links.delete(this);
    return Promise.resolve();
  }

  follow(): void {
    if (this.#ended) return;
    this.#stale = true;
    this.#changed();
    if (!this.#plane.isUp) return;
    for (const wanted of this.interests) this.#loop.after(30, () => this.#answer(wanted));
    this.#loop.after(40, () => {
      if (this.#ended || !this.#plane.isUp) return;
      this.#stale = false;
      this.#changed();
    });
  }

  #changed(): void {
    this.#siblings.follow(this.#own());
    this.#sink.changed();
  }

  #answer(wanted: Interest): void {
    if (this.#ended || !this.#plane.isUp || !this.interests.has(wanted)) return;
    const env = wanted.parameters.entries.get('env') ?? '';
    const role = wanted.selector === '*' ? 'wildcard' : 'named';
    const puts = [...this.#plane.contents]
      .filter(([name]) => role === 'wildcard' || name === wanted.selector)
      .map(([name, content]) => put(wanted.type, name, content, { constraints: when({ env }) }));
    const holder = { key: `${role} ${env}`, upstream: 'central', role } as const;
    const complete = role === 'wildcard';
    this.#sink.apply(transaction({ holder, type: wanted.type, puts, complete, resolved: [wanted] }));
  }
}

/** A replica: all is real but the control plane, the sockets and the time. */
class Replica implements Host {
  readonly id: string;
  readonly connections = new Set<Connection>();
  reachable: 'up' | 'down' = 'up';
  readonly relay: Relay;
  readonly upstream: PlaneUpstream;
  readonly #siblings: SiblingServing;
  #alive = true;

  constructor(id: string, world: Replicas) {
    this.id = id;
    const { loop: clock, network } = world;
    const defer = (run: () => void): void => {
      clock.after(0, () => {
        if (this.#alive) run();
      });
    };
    const limits = {
      maxSubscriptions: 100_000,
      changesPerSecond: 1_000_000,
      stalledMilliseconds: 60_000,
      firstRequestMilliseconds: Number.POSITIVE_INFINITY,
    };
    this.relay = new Relay({
      clock,
      controlPlane: id,
      idleMilliseconds: 600_000,
      maxCacheBytes: () => 2 ** 30,
      streams: { opened: nothing, changing: nothing, closed: nothing },
      defer,
      published: (commit) => this.#siblings.publish(commit),
      events: {
        ambiguous: nothing,
        lookedUp: nothing,
        answered: nothing,
        evicted: nothing,
        upstreamChanged: nothing,
      },
      downstream: {
        events: streamEvents,
        limits: () => limits,
        constrained: () => false,
        contentVersions: () => false,
        legacyWildcard: () => true,
        reapplyRules: (client) => client,
        context: () => ({ ok: false, error: { code: 3, message: 'it has no streams of clients' } }),
      },
    });
    this.#siblings = new SiblingServing(config, {
      clock,
      relay: this.relay,
      relayId: id,
      events: streamEvents,
      limits: () => limits,
      defer,
    });
    const siblings = new Siblings(
      {
        name: 'central',
        address: { kind: 'tcp', host: 'peers', port: 1 },
        lookup: () => Promise.resolve([...world.hosts.keys()]),
        random: () => world.random.next(),
        clock,
        connect: (address, sink): Upstream =>
          new AdsUpstream(
            {
              name: 'central',
              claims: CLAIMS_EVERYTHING,
              endpoints: [{ kind: 'unix', path: address.kind === 'tcp' ? address.host : '' }],
              transport: network.dialer(id, world.known, nothing),
              protocol: 'DELTA',
              variants: 'NATIVE',
              sessionPerParameters: true,
              tls: undefined,
              connectTimeoutMs: 1000,
              resourceTimeoutMs: undefined,
              keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
              backoff: { initialMs: 100, maxMs: 1000 },
              failbackAfterMs: 1000,
              rules: [],
              node: {
                id,
                cluster: 'replicas',
                metadata: {},
                locality: { region: '', zone: '', subZone: '' },
              },
              version: '0',
              via: () => id,
              maxConstraintDepth: 8,
              maxSessions: () => 100,
              clock,
              random: () => world.random.next(),
              log: createLog({ level: 'error', write: nothing }),
              metrics: {},
            },
            sink,
          ),
        lookupFailed: nothing,
      },
      this.relay,
    );
    this.upstream = new PlaneUpstream(world.plane, this.relay, clock, siblings);
    this.relay.start([this.upstream]);
  }

  accept(call: Call): void {
    const route = routes.get(call.path);
    const refusal = route && this.#siblings.accept(call, route);
    if (refusal !== undefined) call.end(refusal);
  }

  serve(env: string): void {
    for (const one of asked(env)) this.relay.views.interests.acquire(one);
  }

  die(): void {
    this.#alive = false;
    this.reachable = 'down';
    void this.relay.stop();
    this.#siblings.stop();
    for (const connection of [...this.connections]) connection.kill('killed');
  }

  /** What clients of an environment have here, by what was asked; undefined: unknown. */
  has(env: string): readonly (Readonly<Record<string, string>> | undefined)[] {
    const { store } = this.relay;
    return asked(env).map((one) => {
      if (!this.relay.isAnswered(one)) return undefined;
      const found =
        one.selector === '*' ? [...store.members(one.type, one.selector, one.parameters)] : [one.selector];
      const values = found.map((name): [string, string] => {
        const value = store.resolve(one.type, name, one.parameters);
        return [name, isVariant(value) ? (value.version.split('@')[0] ?? '') : value]; // relays add a hash
      });
      return Object.fromEntries(values.toSorted(([a], [b]) => (a < b ? -1 : 1)));
    });
  }
}

/** Replicas that are killed and replaced, by a seed. */
export class Replicas {
  readonly loop = new EventLoop();
  readonly random: Random;
  readonly plane = new Plane();
  /** Those that run. */
  readonly hosts = new Map<string, Replica>();
  /** Those that ran, too. */
  readonly known = new Map<string, Replica>();
  readonly network: Network;
  /** By replica: the environments that have clients there. */
  readonly #clients = new Map<string, Set<string>>();
  #next = 1;

  constructor(seed: number) {
    this.random = new Random(seed, 'replicas');
    this.network = new Network({ loop: this.loop, seed, note: nothing, overrun: nothing, lost: nothing });
  }

  start(): Replica {
    const replica = new Replica(`r${this.#next++}`, this);
    this.hosts.set(replica.id, replica);
    this.known.set(replica.id, replica);
    this.#clients.set(replica.id, new Set());
    return replica;
  }

  /** Its clients go to others. */
  kill(replica: Replica): void {
    this.hosts.delete(replica.id);
    replica.die();
    const homeless = this.#clients.get(replica.id) ?? [];
    this.#clients.delete(replica.id);
    for (const env of homeless) this.serve(this.random.pick([...this.hosts.values()]), env);
  }

  serve(replica: Replica, env: string): void {
    const served = this.#clients.get(replica.id);
    if (served === undefined || served.has(env)) return;
    served.add(env);
    replica.serve(env);
  }

  /** Time passes; `check` sees what each class of clients has, after each step. */
  async run(
    milliseconds: number,
    check: (has: ReturnType<Replica['has']>, where: string) => void,
  ): Promise<void> {
    for (let left = milliseconds; left > 0; left -= stepMs) {
      this.loop.advance(stepMs);
      await turn(); // lookups are promises
      for (const [id, served] of this.#clients)
        for (const env of served) check(this.hosts.get(id)?.has(env) ?? [], `${id} ${env}`);
    }
  }
}

/** What each class of clients has with these contents. */
export const everything = (contents: ReadonlyMap<string, string>): ReturnType<Replica['has']> => {
  const all = [...contents].map(([name, content]): [string, string] => [name, `v-${content}`]);
  const one = (wanted: string) => Object.fromEntries(all.filter(([name]) => name === wanted));
  return [Object.fromEntries(all.toSorted(([a], [b]) => (a < b ? -1 : 1))), one('a'), one('b')];
};
