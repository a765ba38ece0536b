import { ADS_SERVICE } from '../../src/model/types.ts';
import type { ChannelStreamHandler } from '../../src/upstream/ads/grpc-channel.ts';
import { Causes } from './causes.ts';
import { type Parameters, parameterSets } from './constraints.ts';
import { LoadReporter } from './load-reporter.ts';
import {
  describe,
  type Received,
  type ReceivedResource,
  readDelta,
  readSotw,
  type Speech,
  writeDelta,
  writeSotw,
} from './messages.ts';
import type { Call, Connection, Network } from './network.ts';
import type { Epoch, RelayHost } from './relay-host.ts';
import { Released } from './released.ts';
import type { Tally } from './tally.ts';
import { NOTHING, Topic, type Wanted } from './topic.ts';
import { type Note, Violation } from './violation.ts';
import { catalog, isBad, isHarmful, type Kind, kinds, leadsTo, movingRoute, type World } from './world.ts';

export interface ClientPlan {
  readonly id: string;
  readonly protocol: 'sotw' | 'delta';
  /** Replicas that it may be connected to. */
  readonly relays: readonly string[];
  /** Indexes of parameter sets: with them it sends locators. */
  readonly locators: readonly number[];
  /** Index of the parameter set in its node. */
  readonly node: number;
  readonly wrapped: boolean;
  /** It reads slowly: every write must wait for it. */
  readonly slow: boolean;
  /** It repeats its node in every request, as Envoy does. */
  readonly chatty: boolean;
  /** It comes back with what it had: versions, initial_resource_versions. */
  readonly resumes: boolean;
  /** It reports its load. */
  readonly reports?: boolean;
  readonly wants: readonly {
    readonly kind: Kind;
    readonly names: readonly string[];
    readonly wildcard: boolean;
  }[];
}

export interface ClientOptions {
  readonly plan: ClientPlan;
  readonly network: Network;
  readonly world: World;
  readonly relays: ReadonlyMap<string, RelayHost>;
  readonly note: Note;
  readonly tally: Tally;
}

/** What the relay knew of a client when it wrote. */
interface Stamp {
  readonly received: Received;
  readonly wanted: Wanted;
  readonly parameters: Parameters;
  readonly epoch: Epoch;
  readonly known: number;
  readonly disturbances: number;
  readonly changed: readonly string[];
}

/** A stream, as its server sees it. */
interface ServerSide {
  readonly call: Call;
  readonly wanted: Map<Kind, Wanted>;
  /** By type, the last response. */
  readonly last: Map<Kind, Received>;
  readonly causes: Map<Kind, Causes>;
  readonly released: ReadonlyMap<Kind, Released>;
  /** By kind and name, what was sent last on it, with its parameters of now. What is sent again after something else is sent anew. */
  readonly sent: Map<string, readonly string[]>;
  /** By nonce, what has not been answered yet. */
  readonly outstanding: Map<string, Received>;
  parameters: Parameters;
  /** The next CDS answers a subscription, or shows other variants: all of it counts as changed. */
  answers: boolean;
}

const paths = {
  sotw: `/${ADS_SERVICE}/StreamAggregatedResources`,
  delta: `/${ADS_SERVICE}/DeltaAggregatedResources`,
};
/** How soon a client comes back when its stream has failed, in milliseconds. */
const comeBack = 300;

/** A client that folds responses as Envoy and gRPC do, and holds each to the rules. */
export class Client {
  readonly plan: ClientPlan;
  /** Responses received, for quiet times. */
  received = 0;
  readonly #options: ClientOptions;
  readonly #topics = new Map<Kind, Topic>();
  #parameters: Parameters;
  #relay = 0;
  #started = false;
  #away = false;
  #connection: Connection | undefined;
  #side: ServerSide | undefined;
  #nodeSent = false;
  #rejectNext = false;
  #epoch: string | undefined;
  /** In the last quiet it had something of each type. */
  #served = false;
  /** Rule 6 holds while nothing but updates happens: the disturbances that there were when it began. */
  #armed: number | undefined;
  readonly #hadClusters = new Set<string>();
  readonly #reporter: LoadReporter | undefined;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.plan = options.plan;
    this.#parameters = parametersAt(options.plan.node);
    const { plan, network, note, tally } = options;
    if (plan.reports === true)
      this.#reporter = new LoadReporter({
        id: plan.id,
        network,
        note,
        parameters: () => this.#parameters,
        failing: () =>
          this.#topics
            .values()
            .some((topic) => Iterator.from(topic.held).some(({ content }) => isHarmful(content))),
        reported: () => tally.count('load report of a client'),
      });
  }

  get running(): boolean {
    return this.#started;
  }

  start(): void {
    if (this.#started) return;
    this.#started = true;
    for (const { kind, names, wildcard } of this.plan.wants) {
      this.#topic(kind).wanted = { names: new Set(names), wildcard };
    }
    this.#connect();
  }

  subscribe(kind: Kind, names: readonly string[], wildcard: boolean): void {
    if (!this.#started || (names.length === 0 && !wildcard)) return;
    this.#armed = undefined;
    const topic = this.#topic(kind);
    const before = topic.wanted;
    const sotw = this.plan.protocol === 'sotw';
    // Complete with a wildcard, and partial without, where a lack means nothing: that never changes here.
    const partial = sotw && !catalog[kind].full;
    if (partial && before.wildcard) return;
    const all = before.wildcard || (wildcard && !(partial && before !== NOTHING));
    const named = partial && all ? [] : names;
    topic.askByName(named, this.#forms(this.#parameters), this.host.epoch.base);
    // What it has unsubscribed counts as never sent (protocol §3.5): who subscribes to it again has dropped it.
    topic.forgetUnwanted();
    topic.wanted = { names: before.names.union(new Set(named)), wildcard: all };
    const changed = all !== before.wildcard || named.some((name) => !before.names.has(name));
    if (!sotw) this.#subscribeDelta(topic, [...named, ...(all && !before.wildcard ? ['*'] : [])], []);
    else if (changed) this.#say(topic, undefined);
  }

  unsubscribe(kind: Kind, names: readonly string[], wildcard: boolean): void {
    const topic = this.#topics.get(kind);
    if (topic === undefined || !this.#started) return;
    this.#armed = undefined;
    const before = topic.wanted;
    const fewer = before.names.difference(new Set(names));
    const sotw = this.plan.protocol === 'sotw';
    const stuck = sotw && (!catalog[kind].full || (!topic.named && fewer.size === 0));
    const all = stuck ? before.wildcard : before.wildcard && !wildcard;
    if (sotw && !all && fewer.size === 0 && !topic.named) return; // an empty first request would be the wildcard
    topic.wanted = { names: fewer, wildcard: all };
    const dropped = names.filter((name) => before.names.has(name));
    if (dropped.length === 0 && all === before.wildcard) return;
    if (sotw) {
      this.#say(topic, undefined);
      return;
    }
    topic.forgetUnwanted();
    this.#subscribeDelta(topic, [], [...dropped, ...(before.wildcard && !all ? ['*'] : [])]);
  }

  changeNode(index: number): void {
    const parameters = parametersAt(index);
    if (!this.#started || this.plan.locators.length > 0 || parameters === this.#parameters) return;
    this.#parameters = parameters;
    this.#armed = undefined;
    // On this stream it has been asked for: an empty first request would be the wildcard.
    const topic = this.#topics.values().find(({ wanted }) => wanted.wildcard || wanted.names.size > 0);
    this.#nodeSent = false;
    if (topic === undefined || this.#side === undefined) return;
    if (this.plan.protocol === 'sotw') this.#say(topic, undefined);
    else this.#subscribeDelta(topic, [], []);
  }

  stall(milliseconds: number): void {
    this.#connection?.stall(milliseconds);
  }

  rejectNext(): void {
    this.#rejectNext = true;
  }

  disconnect(milliseconds: number, elsewhere: boolean): void {
    if (!this.#started || this.#away) return;
    this.#away = true;
    if (elsewhere) this.#relay++;
    this.#hangUp();
    this.#options.network.loop.after(milliseconds, () => {
      this.#away = false;
      this.#connect();
    });
  }

  /** Everything that was done to it ends. */
  heal(): void {
    this.#rejectNext = false;
    this.#connection?.unstall();
  }

  /** Rule 4, and a fresh start for rule 6. `isTaken`: control planes take reports. */
  settle(isTaken: boolean): void {
    if (!this.#started) return;
    if (this.#side === undefined) throw new Violation(4, `${this.plan.id} has no stream`);
    if (isTaken && this.#reporter?.isAsked === false)
      throw new Violation(10, `${this.plan.id} is not asked for reports`);
    for (const topic of this.#topics.values()) this.#settle(topic);
    // What a SotW client could not be told to be gone is saved nowhere.
    const forms = this.#forms(this.#parameters);
    this.#served = this.#topics
      .values()
      .every((topic) => topic.holdsAny && !forms.every((form) => topic.absent(form)));
    this.#arm(this.host.disturbances);
  }

  /** Rule 4 for a client of this relay, which has restarted: for what it has saved. */
  settleIn(relay: RelayHost): void {
    if (!this.#started || this.#away || this.host !== relay) return;
    // Who asks first for what is not saved, or was never known, is refused as by a cold relay.
    if (!this.#served || !this.#topics.keys().every((kind) => relay.remembers(kind))) return;
    for (const topic of this.#topics.values()) {
      this.#options.tally.count('type served from a saved cache');
      this.#settle(topic);
    }
  }

  #settle(topic: Topic): void {
    try {
      topic.settle(this.#forms(this.#parameters));
    } catch (error) {
      throw this.#explain(error, topic.kind);
    }
  }

  get host(): RelayHost {
    const id = this.plan.relays[this.#relay % this.plan.relays.length] ?? '';
    const host = this.#options.relays.get(id);
    if (host === undefined) throw new Error(`there is no relay ${id}`);
    return host;
  }

  #topic(kind: Kind): Topic {
    const known = this.#topics.get(kind);
    if (known !== undefined) return known;
    const { world } = this.#options;
    const constrained = this.#constrained;
    const { protocol, locators } = this.plan;
    const created = new Topic({
      kind,
      world,
      protocol,
      constrained,
      locators: locators.length > 0,
      loss: (byName) => this.host.loss(kind, byName),
      returnsKept: () => this.host.returnsKept,
      hasty: () => this.host.hasty(kind),
      unanswered: (wish) => {
        const isSilent = this.host.hearsNothing(wish);
        if (isSilent) this.#options.tally.count('kept while a control plane is silent');
        return isSilent;
      },
    });
    this.#topics.set(kind, created);
    return created;
  }

  /** Told of constraints: a locator client, or a relay that tells everybody. */
  get #constrained(): boolean {
    return this.plan.locators.length > 0 || this.host.plan.constrained;
  }

  #forms(node: Parameters): readonly Parameters[] {
    return this.plan.locators.length > 0 ? this.plan.locators.map(parametersAt) : [node];
  }

  #connect(): void {
    if (this.#away || this.#side !== undefined) return;
    const { network, note } = this.#options;
    const { host } = this;
    if (host.reachable === 'down') {
      network.loop.after(comeBack, () => this.#connect());
      return;
    }
    const connection = network.connect(this.plan.id, host);
    connection.slow = this.plan.slow;
    const handler: ChannelStreamHandler = {
      message: () => false,
      proceed: () => false,
      closed: (reason) => {
        if (this.#side?.call !== side.call) return;
        note(() => `${this.plan.id} lost its stream: ${reason}`);
        if (reason.startsWith('14:')) this.#options.tally.count('stream refused by a cold relay');
        this.#hangUp();
        network.loop.after(comeBack, () => this.#connect());
      },
    };
    const call = connection.call(paths[this.plan.protocol], handler);
    const side: ServerSide = {
      call,
      wanted: new Map(),
      last: new Map(),
      causes: new Map(),
      released: new Map(kinds.map((kind) => [kind, new Released()])),
      outstanding: new Map(),
      sent: new Map(),
      parameters: this.#parameters,
      answers: false,
    };
    call.written = (frame) => this.#written(side, frame);
    this.#connection = connection;
    this.#side = side;
    this.#nodeSent = false;
    this.#armed = undefined;
    for (const topic of this.#topics.values()) this.#greet(topic);
    this.#reporter?.open(connection);
  }

  /** Nothing more is requested, or it is again. */
  rest(resting: boolean): void {
    if (this.#reporter !== undefined) this.#reporter.resting = resting;
  }

  /** Whether it has this content, though it could hear better. `isThere`: whether there is anything of the name. */
  has(kind: Kind, name: string, content: string, isThere: (form: Parameters) => boolean): boolean {
    return this.#topics.get(kind)?.has(name, content, this.#forms(this.#parameters), isThere) === true;
  }

  /** The first request of a type on a stream. */
  #greet(topic: Topic): void {
    const { protocol, resumes } = this.plan;
    const claims = resumes && (protocol === 'sotw' || !this.#constrained);
    topic.reset(claims);
    if (topic.wanted.names.size === 0 && !topic.wanted.wildcard) return;
    if (protocol === 'sotw') {
      this.#side?.released.get(topic.kind)?.resumed(topic.held);
      this.#say(topic, undefined);
      return;
    }
    const { names, wildcard } = topic.wanted;
    const legacy =
      wildcard && names.size === 0 && catalog[topic.kind].legacy && this.plan.locators.length === 0;
    const subscribe = legacy ? [] : [...(wildcard ? ['*'] : []), ...names];
    const claimed = topic.claim();
    const causes = this.#side === undefined ? undefined : this.#causesOf(this.#side, topic.kind);
    for (const [name, version] of claimed) causes?.claimed(name, version);
    if (claimed.size > 0) this.#options.tally.count('resumption with initial_resource_versions');
    this.#sendDelta(topic, subscribe, [], claimed, '', undefined);
  }

  #hangUp(): void {
    this.#reporter?.close();
    this.#side = undefined;
    this.#connection?.close();
    this.#connection = undefined;
    this.#armed = undefined;
  }

  /** At the relay: what it writes now is meant for a client that it knows so. */
  #written(side: ServerSide, frame: Buffer): () => void {
    const received =
      this.plan.protocol === 'sotw' ? readSotw(frame.subarray(5)) : readDelta(frame.subarray(5));
    const { kind } = received;
    const wanted = side.wanted.get(kind) ?? NOTHING;
    const before = side.last.get(kind);
    side.last.set(kind, received);
    side.outstanding.set(received.nonce, received);
    const changed = this.#caused(side, wanted, received);
    this.#onlyReleased(side, wanted, received);
    this.#inItsWaves(side, received, before);
    const { host } = this;
    const stamp: Stamp = {
      received,
      wanted,
      changed,
      parameters: side.parameters,
      epoch: host.epoch,
      known: host.known,
      disturbances: host.disturbances,
    };
    return () => {
      if (this.#side === side) this.#receive(stamp);
    };
  }

  #receive({ received, wanted, parameters, epoch, known, disturbances, changed }: Stamp): void {
    const { note } = this.#options;
    this.received++;
    this.#count(received, wanted);
    if (this.#epoch !== epoch.id) {
      this.#epoch = epoch.id;
      for (const topic of this.#topics.values()) topic.lowerFloors(epoch.base);
    }
    const topic = this.#topics.get(received.kind);
    const reject = this.#rejectNext || received.resources.some(({ content }) => isBad(content));
    note(() => `${this.plan.id} ← ${describe(received)}${reject ? ' rejected' : ''}`);
    if (topic === undefined) throw new Violation(1, `${this.plan.id}: ${received.kind} was not asked for`);
    this.#rejectNext = false;
    if (reject) this.#options.tally.count('NACK');
    try {
      topic.receive(
        received,
        { wanted, forms: this.#forms(parameters), known, changed, base: epoch.base },
        reject,
      );
      topic.nonce = received.nonce;
      this.#makeBeforeBreak(reject, disturbances);
    } catch (error) {
      throw this.#explain(error, received.kind);
    }
    const refusal = reject ? 'rejected' : undefined;
    if (this.plan.protocol === 'sotw') this.#say(topic, refusal);
    else this.#sendDelta(topic, [], [], new Map(), received.nonce, refusal);
  }

  #count({ resources, removed, removedVariants, errors }: Received, { names, wildcard }: Wanted): void {
    const { tally } = this.#options;
    const { protocol, locators } = this.plan;
    tally.count(`response to a ${protocol} client`);
    if (locators.length > 0) tally.count('response to a locator client');
    if (locators.length > 1) tally.count('response to a client of several parameter sets');
    if (wildcard && names.size > 0) tally.count('response to wildcard and names');
    if (this.host.belowRelay) tally.count('response over two relays');
    if (removed.length + removedVariants.length > 0) tally.count('removal');
    if (errors.length > 0) tally.count('resource error');
    if (errors.some(({ code }) => code === 5)) tally.count('name said to be missing');
    if (removedVariants.some(({ name }) => resources.some((one) => one.name === name)))
      tally.count('swap of variants');
  }

  #arm(disturbances: number): void {
    this.#armed = this.plan.locators.length === 0 ? disturbances : undefined;
    this.#hadClusters.clear();
  }

  /** Rule 6. */
  #makeBeforeBreak(reject: boolean, disturbances: number): void {
    if (reject || disturbances !== this.#armed) this.#armed = undefined;
    if (this.#armed === undefined) return;
    const clusters = this.#topics.get('cds');
    for (const name of catalog.cds.names) {
      // What it has unsubscribed since it has until the next response only.
      if (clusters?.holds(name) === true && clusters.wants(clusters.wanted, name))
        this.#hadClusters.add(name);
    }
    const routes = this.#topics.get('rds');
    const route = routes?.wanted.names.has(movingRoute) === true ? routes.contentOf(movingRoute) : undefined;
    const target = route === undefined ? undefined : leadsTo(route);
    // Lost while the route led elsewhere: a control plane may tell of a route first that leads there again.
    for (const name of this.#hadClusters)
      if (name !== target && clusters?.holds(name) !== true) this.#hadClusters.delete(name);
    if (target === undefined || !this.#hadClusters.has(target)) return;
    this.#options.tally.count('cluster looked for that a route leads to');
    if (clusters?.holds(target) === true) return;
    if (this.host.unordered) return;
    throw new Violation(6, `the route leads to ${target}, which is lost`);
  }

  #explain(error: unknown, kind: Kind): unknown {
    return error instanceof Violation
      ? new Violation(error.rule, `${this.plan.id}: ${kind} ${error.message}`)
      : error;
  }

  #speech(topic: Topic, nonce: string, error: string | undefined): Speech {
    const { id, wrapped, locators, chatty } = this.plan;
    const node = chatty || !this.#nodeSent ? { id, parameters: this.#parameters, wrapped } : undefined;
    this.#nodeSent = true;
    const forms = locators.length > 0 ? locators.map(parametersAt) : undefined;
    return { kind: topic.kind, node, nonce, error, forms };
  }

  /** A SotW request: each repeats what is subscribed. */
  #say(topic: Topic, error: string | undefined): void {
    const side = this.#side;
    if (side === undefined) return;
    const { wanted, kind, nonce } = topic;
    const plainly = this.plan.locators.length === 0;
    const legacy =
      wanted.wildcard && wanted.names.size === 0 && !topic.named && catalog[kind].legacy && plainly;
    const names = legacy ? [] : [...(wanted.wildcard ? ['*'] : []), ...wanted.names];
    if (names.length > 0) topic.named = true;
    const speech = this.#speech(topic, nonce, error);
    const parameters = this.#parameters;
    side.call.send(writeSotw(speech, topic.version, names), () => {
      this.#identified(side, speech, parameters);
      const last = side.last.get(kind);
      const answered = side.outstanding.get(nonce);
      side.outstanding.delete(nonce);
      // Its parts come again even if it is stale (protocol §3.12).
      if (answered !== undefined && error !== undefined) this.#causesOf(side, kind).rejected(answered);
      if (last !== undefined && last.nonce !== nonce) return; // stale
      if (last !== undefined && error !== undefined) this.host.rollout?.rejected(last);
      this.#asked(side, kind, wanted, [], new Map());
    });
  }

  /** Rule 5. Returns the names that are new in the response. */
  #caused(side: ServerSide, wanted: Wanted, received: Received): string[] {
    const { kind } = received;
    const causes = this.#causesOf(side, kind);
    try {
      const changed = this.#topic(kind).isComplete(wanted)
        ? causes.complete(received, (name) => this.#topic(kind).wants(wanted, name))
        : causes.partial(received, wanted.wildcard, (name) => wanted.names.has(name));
      // Envoy warms changed clusters anew, and waits for their endpoints (protocol §10.1).
      if (kind === 'cds') {
        const warmed = side.answers ? received.resources.map(({ name }) => name) : changed;
        this.#causesOf(side, 'eds').asked(warmed);
        side.answers = false;
      }
      return changed;
    } catch (error) {
      this.#options.note(() => `${this.plan.id} is sent ${describe(received)}`);
      throw this.#explain(error, kind);
    }
  }

  /** Rule 7. */
  #onlyReleased(side: ServerSide, wanted: Wanted, received: Received): void {
    const { kind } = received;
    const released = side.released.get(kind);
    if (released === undefined) return;
    const turn = this.#turn(kind);
    if (turn !== undefined) this.#options.tally.count('response behind a closed gate');
    try {
      released.written(received, this.#topic(kind).isComplete(wanted), turn);
    } catch (error) {
      throw this.#explain(error, kind);
    }
  }

  /** Rules 8 and 9. */
  #inItsWaves(side: ServerSide, { kind, resources }: Received, before: Received | undefined): void {
    const { rollout } = this.host;
    if (rollout === undefined) return;
    for (const [name, own] of Map.groupBy(resources, (one) => one.name)) {
      const sent = side.sent.get(`${kind} ${name}`) ?? [];
      // Make before break: SotW repeats what it loses with its parameters of before.
      const isRepeated = ({ content }: ReceivedResource): boolean =>
        before?.resources.some((one) => one.name === name && one.content === content) === true &&
        !rollout.isThere(kind, name, side.parameters);
      const known = own.filter(({ content }) => sent.includes(content));
      const fresh = own.filter((one) => !known.includes(one) && !isRepeated(one));
      side.sent.set(
        `${kind} ${name}`,
        [...known, ...fresh].map(({ content }) => content),
      );
      for (const one of fresh) rollout.written(this.plan.id, side.parameters, kind, one);
    }
  }

  #turn(kind: Kind): number | undefined {
    return this.host.turnFor(this.plan.id, kind);
  }

  /** At the relay: the node of a request counts at once. */
  #identified(side: ServerSide, { node }: Speech, parameters: Parameters): void {
    if (node === undefined || parameters === side.parameters) return;
    side.parameters = parameters;
    side.answers = true;
    side.sent.clear();
    for (const [kind, released] of side.released) released.excuse(this.#turn(kind));
    for (const causes of side.causes.values()) causes.everythingAsked();
  }

  /** At the relay: what is new in a subscription must be answered, and what is subscribed once more. */
  #asked(
    side: ServerSide,
    kind: Kind,
    wanted: Wanted,
    again: readonly string[],
    versions: ReadonlyMap<string, string>,
  ): void {
    const before = side.wanted.get(kind) ?? NOTHING;
    const causes = this.#causesOf(side, kind);
    side.wanted.set(kind, wanted);
    if (before !== wanted) side.released.get(kind)?.excuse(this.#turn(kind));
    const added = wanted.names.difference(before.names);
    causes.named(added);
    const all = wanted.wildcard && !before.wildcard ? catalog[kind].names : [];
    const asked = [...added, ...again, ...all];
    // What the client says it has needs no answer if it is still so (protocol §4.1).
    if (asked.length > 0) causes.asked(asked.filter((name) => !versions.has(name)));
    if (kind === 'cds' && asked.length > 0) side.answers = true;
    if (all.length > 0) causes.wildcardAsked();
  }

  #causesOf(side: ServerSide, kind: Kind): Causes {
    const known = side.causes.get(kind);
    if (known !== undefined) return known;
    const { world } = this.#options;
    const created = new Causes(
      world,
      kind,
      this.plan.protocol === 'sotw',
      Math.max(1, this.plan.locators.length),
      (name) => {
        const { names, wildcard } = this.#topic(kind).wanted;
        const loss = this.host.loss(kind, !wildcard || names.has(name));
        return loss === 'choices' && world.earlier(kind, name).some((variants) => variants.length > 1);
      },
      () => this.host.turns,
    );
    side.causes.set(kind, created);
    return created;
  }

  #subscribeDelta(topic: Topic, subscribe: readonly string[], unsubscribe: readonly string[]): void {
    this.#sendDelta(topic, subscribe, unsubscribe, new Map(), '', undefined);
  }

  #sendDelta(
    topic: Topic,
    subscribe: readonly string[],
    unsubscribe: readonly string[],
    versions: ReadonlyMap<string, string>,
    nonce: string,
    error: string | undefined,
  ): void {
    const side = this.#side;
    if (side === undefined) return;
    const { wanted, kind } = topic;
    const speech = this.#speech(topic, nonce, error);
    const parameters = this.#parameters;
    side.call.send(writeDelta(speech, subscribe, unsubscribe, versions), () => {
      this.#identified(side, speech, parameters);
      const answered = side.outstanding.get(nonce);
      side.outstanding.delete(nonce);
      if (answered !== undefined && error !== undefined) {
        this.#causesOf(side, kind).rejected(answered);
        this.host.rollout?.rejected(answered);
      }
      // Of what a wildcard shows the presence or absence is told, too, when its name is unsubscribed (protocol §4.5).
      this.#asked(side, kind, wanted, [...subscribe, ...unsubscribe], versions);
    });
  }
}

function parametersAt(index: number): Parameters {
  const set = parameterSets[index % parameterSets.length];
  if (set === undefined) throw new Error('there is no such parameter set');
  return set;
}
