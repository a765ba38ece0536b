import { hash } from 'node:crypto';
import type { Charged } from '../../model/brand.ts';
import { type Clock, Sweep, type Timer } from '../../model/clock.ts';
import type { WantedMetadata } from '../../model/node-path.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import { type Encoding, encoding, type Response, type Subscription } from '../../model/subscription.ts';
import { keptError } from '../../model/text.ts';
import { atOnce, type InTurns, TimeSlices } from '../../model/time-slices.ts';
import { knownTypes, type TypeInfo } from '../../model/types.ts';
import type { Account } from '../../wire/accounts.ts';
import { ClientStream, OpenStreams } from '../../wire/client-stream.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import { denied, draining, exhausted, malformed, type Refusal, rulesChanged } from '../../wire/refusal.ts';
import { readRequest, sotwSelectors } from '../../wire/requests.ts';
import type { Peer, ServerStream } from '../../wire/server-stream.ts';
import {
  deniedAll,
  excessOf,
  excessOfNames,
  heldTooMuch,
  refusedUpstream,
  tooLarge,
  unavailable,
} from '../admission.ts';
import type { ClientContext, DownstreamServices } from '../services.ts';
import type { ClientTransport } from '../stream-metrics.ts';
import { largeBytes, selectState } from '../type-stream.ts';
import { lingerMs, type Poll, type PolledNames, PollingClients } from './polling-clients.ts';

const sweepMs = 5000;
/** Of all classes together, whoever polls: names, classes, and bytes of responses. The least recently polled ends first. */
const maxNames = 2_000_000;
const maxClasses = 20_000;
/** Of the responses that they keep. */
const maxBytes = 256 << 20;
/** A response over REST is kept with its JSON, which is three times as long. */
const bytesPerByte = 4;
/** A class of so many names costs as much as two (`Quota`). */
const namesPerChange = 500;

/** A version is kept until the next poll, and longer. No control plane has such a long one: it is one that nobody has. */
const longestVersion = 1024;
const keptVersion = (version: string): string =>
  version.length > longestVersion ? hash('sha256', version) : version;

/** A poll as it was read, while the rules hold by which it was. */
export interface ReadPoll extends Poll {
  readonly generation: number;
  /** Where it was answered before. */
  class: PollClass | undefined;
  /** Of its client, as it is listed. */
  names: PolledNames | undefined;
}

/** What a poll is answered with. */
export type PollOutcome =
  /** `version`: of what it shows. */
  | { readonly kind: 'response'; readonly response: Response; readonly version: string }
  /** The client has this version. */
  | { readonly kind: 'unchanged'; readonly version: string }
  | ({ readonly kind: 'refused' } & Refusal);

type Answered = (outcome: PollOutcome) => void;

const refused = (refusal: Refusal): PollOutcome => ({ kind: 'refused', ...refusal });

/** What clients ask for in single requests: REST polls and the unary Fetch (protocol §7). */
export class Polls {
  readonly #services: DownstreamServices;
  readonly clients: PollingClients;
  /** The calls of the unary Fetch that are open. */
  readonly fetches: OpenStreams<FetchCall>;
  /** The least recently polled first. */
  readonly #classes = new Map<string, PollClass>();
  #names = 0;
  /** Of the responses that classes keep. */
  #bytes = 0;
  /** Grows with each change of the rules. */
  #generation = 0;
  readonly #sweep: Sweep;
  readonly #slices: TimeSlices;
  #ended = false;

  /** `clientPrefix`: before the numbers that are the ids of clients. */
  constructor(services: DownstreamServices, clientPrefix: string) {
    this.#services = services;
    this.fetches = new OpenStreams(services.clock, services.limits, services.places);
    this.clients = new PollingClients(services, clientPrefix);
    this.#slices = new TimeSlices(services.clock);
    this.#sweep = new Sweep(services.clock, sweepMs, () => this.#endUnused());
  }

  /** Why this peer is refused whatever it asks for. */
  refusal(peer: Peer, info: TypeInfo): GrpcStatus | undefined {
    const refusal = this.#ended ? draining : this.#services.places?.denial(peer, info.url);
    return refusal && this.rejected(refusal, peer);
  }

  /** Takes a call of a path in `fetchRoutes`, or ends it. `milliseconds`: how long it waits for what is unknown. */
  fetch(stream: ServerStream, info: TypeInfo, milliseconds: number): void {
    const refusal = this.#services.places?.refusal(stream.peer, info.url);
    if (refusal !== undefined) stream.end(this.rejected(refusal, stream.peer));
    else
      this.fetches.take(
        stream,
        (id) => new FetchCall(id, info, stream, this, this.#services.clock, milliseconds),
      );
  }

  /**
   * Reads a DiscoveryRequest that stands for itself: it must carry the node, and the path says the type (§7.1). `bytes`
   * must last as long as that.
   */
  *read(
    info: TypeInfo,
    bytes: Buffer,
    peer: Peer,
    transport: ClientTransport,
  ): InTurns<Result<ReadPoll, Refusal>> {
    const services = this.#services;
    const generation = this.#generation;
    const read = readRequest(bytes, 'sotw');
    if (!read.ok) return fail(malformed(read.error));
    const { typeUrl, node, subscribe: selectors } = read.value;
    const version = keptVersion(read.value.version);
    const error = read.value.error && { ...read.value.error, message: keptError(read.value.error.message) };
    if (typeUrl !== '' && typeUrl !== info.url) {
      return fail(malformed(`type_url ${JSON.stringify(typeUrl)} where ${info.url} is served`, 'type'));
    }
    if (node === undefined) return fail(malformed('the request must carry node', 'no_node'));
    const context = services.context(node, peer);
    if (!context.ok) return fail({ reason: 'node', status: context.error });
    const client = context.value;
    if (client.access.deniesEverything(info.url)) return fail(denied(info.url));
    const limits = client.exempt ? undefined : services.limits();
    const names = limits && excessOfNames(selectors, sotwSelectors, limits);
    if (names !== undefined) return fail(exhausted('subscriptions', names));
    // As the first SotW request of a stream (§3.6): each poll stands for itself.
    const selected = yield* selectState(selectors, info.url, client, services);
    if (!selected.ok) return fail(malformed(selected.error));
    const selection = selected.value;
    const deniesAll = deniedAll(client, info, selection);
    if (deniesAll !== undefined) return fail(deniesAll);
    const excess = limits && excessOf({ info, selection }, [], limits);
    if (excess !== undefined) return fail(exhausted('subscriptions', excess));
    const encoded = this.#encoding(client, transport);
    const asked = { info, client, transport, selection, encoding: encoded, version, error };
    return ok({ ...asked, generation, class: undefined, names: undefined });
  }

  #encoding({ wrapped, ttl }: ClientContext, transport: ClientTransport): Encoding {
    return encoding({
      protocol: 'sotw',
      wrapped,
      // A poll that is answered with 304 could not prolong it (§8.1).
      ttl: transport === 'fetch' && ttl,
      constrained: this.#services.constrained(),
      // Over REST version_info says what is in the response, so that 304 can be told (§7.3).
      contentVersions: transport === 'rest' || this.#services.contentVersions(),
      unknownNames: false,
      absencesUnsaid: false,
    });
  }

  /** What is read of a node's metadata; undefined: all of it. */
  get wantedMetadata(): WantedMetadata | undefined {
    return this.#services.wantedMetadata?.();
  }

  /** The rules by which it was read are in force. */
  isCurrent({ generation }: ReadPoll): boolean {
    return generation === this.#generation;
  }

  /**
   * Calls back once, at its end or after so many milliseconds: so long it waits for what is unknown. The function
   * returned gives the poll up.
   */
  *ask(poll: ReadPoll, peer: Peer, milliseconds: number, answered: Answered): InTurns<() => void> {
    this.#count(poll, peer);
    const answer: Answered = (found) => {
      const outcome = this.#hasMoved(poll, peer) ? refused(moved) : found;
      if (outcome.kind === 'refused') this.rejected(outcome, peer);
      if (outcome.kind === 'unchanged') this.#told(poll, outcome.version, outcome.version);
      answered(outcome);
    };
    const found = yield* this.#classOf(poll, peer);
    if (!found.ok) {
      answer(refused(found.error));
      return () => {};
    }
    poll.names = this.clients.polled(poll, peer, poll.names);
    poll.class = found.value;
    this.#classes.delete(found.value.key);
    this.#classes.set(found.value.key, found.value);
    const giveUp = found.value.ask(poll, peer, milliseconds, answer);
    this.#makeRoom();
    return giveUp;
  }

  /** While it waited, its client has come to the other cohort. */
  #hasMoved({ generation, client }: ReadPoll, peer: Peer): boolean {
    if (generation === this.#generation) return false;
    return this.#services.reapplyRules(client, peer)?.access.cohort !== client.access.cohort;
  }

  /** It was handed to the client. */
  sent(
    poll: ReadPoll,
    { response, version }: Extract<PollOutcome, { kind: 'response' }>,
    bytes: Buffer,
  ): void {
    this.#services.events.response(poll.info.url, poll.transport, { bytes, receivedAt: undefined });
    this.#told(poll, response.version, version);
  }

  /** Upstreams have gone down. */
  failHopeless(): void {
    for (const one of this.#classes.values()) one.failIfHopeless();
  }

  /** Rules have changed: who polls is looked at anew. */
  reidentify(): void {
    this.#generation++;
    const message = 'the rules have changed meanwhile: ask again';
    this.#endAll({ reason: 'rules', status: { code: Code.UNAVAILABLE, message } });
  }

  /** Some clients are in another cohort now: what was read of requests does not hold for them. */
  rereadRequests(): void {
    this.#generation++;
  }

  /** From now on nothing is answered, and who waits is told so. */
  drain(): void {
    this.#ended = true;
    this.#sweep.stop();
    this.#endAll(draining);
  }

  #told({ class: by, names }: ReadPoll, version: string, content: string): void {
    if (by !== undefined) names?.answered(by, version, content);
  }

  #count({ info, version, error, client }: Poll, peer: Peer): void {
    const { events } = this.#services;
    const kind = error === undefined ? (version === '' ? 'subscribe' : 'ack') : 'nack';
    events.request(info.url, kind);
    if (error !== undefined) events.nack(info.url, client.nodeId, version, error, peer);
  }

  /** A large one is opened in turns. Another poll may open it meanwhile, rules may change, and all may end. */
  *#classOf(poll: ReadPoll, peer: Peer): InTurns<Result<PollClass, Refusal>> {
    const { info, selection, client } = poll;
    const known = this.#known(poll);
    if (known !== undefined) return known;
    const costly = this.#refusalOfNew(poll, peer);
    if (costly !== undefined) return fail(costly);
    let prepared: (() => void) | undefined;
    try {
      if (selection.size >= namesPerChange)
        prepared = yield* this.#services.prepare(info.url, selection, client.access);
      return this.#known(poll) ?? this.#open(poll, peer);
    } finally {
      prepared?.();
      if (this.#classes.get(keyOf(poll))?.poll !== poll) this.#services.sessions?.release(poll);
    }
  }

  /** Undefined: it may be opened. */
  #known(poll: ReadPoll): Result<PollClass, Refusal> | undefined {
    if (this.#ended) return fail(draining);
    if (!this.isCurrent(poll)) return fail(rulesChanged);
    if (poll.class?.closed === false) return ok(poll.class);
    const known = this.#classes.get(keyOf(poll));
    return known?.poll.selection.equals(poll.selection) === true ? ok(known) : undefined;
  }

  /** Spends what a new class costs, or says why there is none. */
  #refusalOfNew(poll: ReadPoll, peer: Peer): Refusal | undefined {
    const { selection, client } = poll;
    if (client.exempt) return undefined;
    if (!peer.account.change(1 + Math.floor(selection.size / namesPerChange))) return tooFast;
    const taken = this.#services.sessions?.take(poll, peer.account, [poll]);
    return typeof taken === 'string' ? exhausted('upstream_sessions', taken) : undefined;
  }

  #open(poll: ReadPoll, peer: Peer): Result<PollClass, Refusal> {
    const { selection } = poll;
    const key = keyOf(poll);
    // Two selections with the same hash: one in 2 ** 48.
    this.#end(key);
    const opened = new PollClass(poll, peer, this.#services, (bytes) => {
      this.#bytes += bytes;
    });
    this.#classes.set(key, opened);
    this.#names += selection.size;
    const held = heldTooMuch(peer.account.excess);
    if (held !== undefined) {
      this.#end(key);
      return fail(held);
    }
    this.#makeRoom();
    this.#sweep.start();
    return ok(opened);
  }

  #makeRoom(): void {
    for (const [key, one] of this.#classes) {
      if (this.#names <= maxNames && this.#classes.size <= maxClasses && this.#bytes <= maxBytes) return;
      if (!one.holds && this.#classes.size > 1) this.#end(key);
    }
  }

  #end(key: string): void {
    const one = this.#classes.get(key);
    if (one === undefined) return;
    this.#classes.delete(key);
    this.#names -= one.poll.selection.size;
    one.close();
  }

  /** Who waits is told so at once. To forget what all have takes longer: that is done in slices. */
  #endAll(refusal: Refusal): void {
    const classes = [...this.#classes.values()];
    this.#classes.clear();
    this.#names = 0;
    for (const one of classes) one.answerAll(refused(refusal));
    void this.#slices.run(async (pace) => {
      for (const one of classes) {
        one.close();
        await pace.yieldIfDue();
      }
      // Whoever polls again has what it had, whatever the rules.
      if (!this.#ended) return;
      for (const { names } of [...this.clients.all()]) {
        for (const one of names.values()) one.forgetOrder();
        await pace.yieldIfDue();
      }
    });
  }

  /** What was not polled for long, and clients that have ended; false: there are no others. */
  #endUnused(): boolean {
    const latest = this.#services.clock.monotonic() - lingerMs;
    for (const [key, one] of this.#classes) {
      if (one.polledAt > latest) break;
      if (!one.holds) this.#end(key);
    }
    return this.clients.size + this.#classes.size > 0;
  }

  /** Counts it. */
  rejected({ reason, status, logged }: Refusal, peer: Peer): GrpcStatus {
    this.#services.events.rejected(reason, logged, peer, status);
    return status;
  }
}

export const tooFast: Refusal = {
  reason: 'rate',
  status: {
    code: Code.RESOURCE_EXHAUSTED,
    message:
      'this peer changes what it polls too often (limits.subscription_changes_per_second): ask again later',
  },
};

const keyOf = ({ info, selection, client, encoding }: Poll): string =>
  `${info.short} ${selection.hash} ${selection.size} ${JSON.stringify(encoding)} ${client.access.key}`;

/** What a class keeps counts for each that keeps it, though classes may share a response. */
const keptBytes = (response: Response | undefined): number => bytesPerByte * (response?.bytes.length ?? 0);

/** All polls of one type, selection and access: one subscription, that lasts from poll to poll (ADR 18). */
class PollClass {
  readonly key: string;
  readonly poll: Poll;
  /** By the clock. */
  polledAt: number;
  closed = false;
  readonly #subscription: Subscription;
  readonly #services: DownstreamServices;
  /** Whose it is alone; undefined: several peers' have polled it. */
  #account: Account | undefined;
  /** The connection of whoever polled first. */
  readonly #first: WeakRef<Peer>;
  #isRepeated = false;
  /** The response that is kept for its polls. */
  #kept: Response | undefined;
  /** So many bytes more are kept, or less. */
  readonly #keeps: (bytes: number) => void;
  /** Polls that wait for what is unknown, and until when. */
  readonly #held = new Map<Answered, readonly [ReadPoll, Timer]>();

  constructor(poll: Poll, peer: Peer, services: DownstreamServices, keeps: (bytes: number) => void) {
    this.key = keyOf(poll);
    this.poll = poll;
    this.#services = services;
    this.#first = new WeakRef(peer);
    this.#account = peer.account;
    this.#keeps = keeps;
    this.polledAt = services.clock.monotonic();
    const { info, encoding, selection, client } = poll;
    const subscriber = { wake: () => this.#wake(), payer: peer.account, polls: 'class' } as const;
    this.#subscription = services.open(info.url, encoding, selection, client.access, subscriber);
  }

  get holds(): boolean {
    return this.#held.size > 0;
  }

  /** Undefined: it shows nothing any more. */
  get shown(): Subscription | undefined {
    return this.closed ? undefined : this.#subscription;
  }

  /** Answers at once, or later. The function returned gives the poll up. */
  ask(poll: ReadPoll, peer: Peer, milliseconds: number, answered: Answered): () => void {
    const { account } = peer;
    const { clock } = this.#services;
    if (this.#first.deref() !== peer && account.excess === undefined) this.#isRepeated = true;
    if (account !== this.#account && this.#account !== undefined) this.#shareIt();
    this.polledAt = clock.monotonic();
    const outcome = this.#outcomeOf(poll, milliseconds <= 0) ?? this.#hopeless();
    if (outcome !== undefined) {
      answered(outcome);
      return () => {};
    }
    const timer = clock.after(milliseconds, () => account.work(() => this.#answer(answered, true)));
    this.#held.set(answered, [poll, timer]);
    return () => this.#release(answered);
  }

  /** Upstreams have gone down: nothing can become known for those that wait. */
  failIfHopeless(): void {
    const outcome = this.holds ? this.#hopeless() : undefined;
    if (outcome !== undefined) this.answerAll(outcome);
  }

  close(): void {
    this.closed = true;
    this.#services.sessions?.release(this.poll);
    this.#keep(undefined);
    this.#subscription.close();
  }

  answerAll(outcome: PollOutcome): void {
    for (const answered of [...this.#held.keys()]) {
      this.#release(answered);
      answered(outcome);
    }
  }

  #wake(): void {
    if (this.#kept !== undefined) this.#keep(this.#subscription.kept);
    for (const answered of [...this.#held.keys()]) this.#answer(answered, false);
  }

  #answer(answered: Answered, timeIsUp: boolean): void {
    const [poll] = this.#held.get(answered) ?? [];
    const outcome = poll && this.#outcomeOf(poll, timeIsUp);
    if (outcome === undefined) return;
    this.#release(answered);
    answered(outcome);
  }

  /** Undefined: more may be known before the time is up (protocol §7.4). */
  #outcomeOf(poll: ReadPoll, timeIsUp: boolean): PollOutcome | undefined {
    const { resolved } = this.#subscription.view;
    if (!resolved && !timeIsUp) return undefined;
    // A digest of all that it shows: not for each update that a poll sees while it waits.
    const { contentVersion: version } = this.#subscription;
    // A Fetch is sent everything each time, and its types do not wait for one another.
    const isRest = poll.transport === 'rest';
    if (isRest && poll.version === version) {
      poll.names?.hasAll(poll);
      this.#keep(this.#subscription.kept);
      return { kind: 'unchanged', version };
    }
    if (!resolved && !this.#isAnswerable(poll)) return refused(unanswered);
    const next = isRest ? poll.names?.next(poll, version) : undefined;
    if (next === 'UNCHANGED') return { kind: 'unchanged', version: poll.version };
    const response = next ?? this.#whole();
    const { length } = response.bytes;
    const { maxResponseBytes = length } = this.#services.limits();
    if (length <= maxResponseBytes || poll.client.exempt) return { kind: 'response', response, version };
    return refused(tooLarge(poll.info.short, length, maxResponseBytes));
  }

  #whole(): Response {
    const response = this.#subscription.whole(this.#isRepeated);
    this.#keep(this.#subscription.kept);
    return response;
  }

  #keep(response: Response | undefined): void {
    if (response === this.#kept) return;
    const bytes = keptBytes(response) - keptBytes(this.#kept);
    this.#kept = response;
    this.#keeps(bytes);
    this.#account?.keeps(bytes);
  }

  #shareIt(): void {
    this.#account?.keeps(-keptBytes(this.#kept));
    this.#account = undefined;
    this.#subscription.share();
  }

  /** Unknown is not absent (§3.9): an answer that lacks what is unknown must not delete it. Envoy asks again. */
  #isAnswerable({ version, transport }: Poll): boolean {
    const { complete, collectionsResolved, allUnknown } = this.#subscription.view;
    if (complete) return collectionsResolved && !allUnknown && version === '';
    return !allUnknown || transport === 'fetch';
  }

  #release(answered: Answered): void {
    this.#held.get(answered)?.[1].cancel();
    this.#held.delete(answered);
  }

  #hopeless(): PollOutcome | undefined {
    const { info } = this.poll;
    const { view } = this.#subscription;
    const types = [{ info, selection: view.selection, subscription: { responded: false, view } }];
    const refusal = unavailable(types, this.#services) ?? refusedUpstream(types, this.#services);
    return refusal && refused(refusal);
  }
}

const moved: Refusal = {
  reason: 'rules',
  status: { code: Code.UNAVAILABLE, message: 'what this client gets is another since it asked: ask again' },
};

const unanswered: Refusal = {
  reason: 'unknown',
  status: {
    code: Code.UNAVAILABLE,
    message: 'no control plane has answered yet for what this request names: ask again',
  },
};

/** FetchX of each service (protocol §2), by path. ADS has none. */
export const fetchRoutes: ReadonlyMap<string, TypeInfo> = new Map(
  knownTypes.flatMap((info): [string, TypeInfo][] =>
    info.fetchMethod === undefined ? [] : [[`/${info.service}/${info.fetchMethod}`, info]],
  ),
);

const missing = malformed('a Fetch call takes one DiscoveryRequest: none came');

/** One unary Fetch: one request, one response with what is known (protocol §7.5). */
class FetchCall extends ClientStream<ReadPoll> {
  readonly #info: TypeInfo;
  readonly #polls: Polls;
  /** How long it waits for what is unknown. */
  readonly #milliseconds: number;
  #isAsked = false;
  #cancel: (() => void) | undefined;

  constructor(
    id: string,
    info: TypeInfo,
    stream: ServerStream,
    polls: Polls,
    clock: Clock,
    milliseconds: number,
  ) {
    super(id, stream, clock);
    this.#milliseconds = milliseconds;
    this.#info = info;
    this.#polls = polls;
  }

  message(bytes: Charged): void {
    if (this.isOver) return;
    if (this.#isAsked) {
      this.failFor(malformed('a Fetch call takes one DiscoveryRequest: another one came'));
      return;
    }
    this.#isAsked = true;
    if (bytes.length < largeBytes) {
      atOnce(this.#ask(bytes));
      return;
    }
    const copy = Buffer.from(bytes);
    this.handleInTurns(copy.length, () => this.#ask(copy));
  }

  *#ask(bytes: Buffer): InTurns<void> {
    const { peer } = this;
    const read = yield* this.#polls.read(this.#info, bytes, peer, 'fetch');
    if (!read.ok) {
      this.failFor(read.error);
      return;
    }
    this.client = read.value;
    this.#cancel = yield* this.#polls.ask(read.value, peer, this.#milliseconds, (outcome) =>
      this.#answer(read.value, outcome),
    );
  }

  #answer(poll: ReadPoll, outcome: PollOutcome): void {
    if (outcome.kind !== 'response') {
      this.end(outcome.kind === 'refused' ? outcome.status : ended);
      return;
    }
    this.failFor(heldTooMuch(this.peer.account.unreadExcess));
    if (this.isOver) return;
    const { bytes } = outcome.response;
    this.#polls.sent(poll, outcome, bytes);
    if (this.write(bytes)) this.end(ended);
    else this.keepUnread(bytes.length);
  }

  /** The client half-closes after its request. */
  override ended(): void {
    if (!this.#isAsked) this.failFor(missing);
  }

  override drained(): void {
    this.end(ended);
  }

  override closed(): void {
    super.closed();
    this.giveUpReading();
    this.#cancel?.();
    this.#polls.fetches.delete(this.id);
  }

  protected rejected(refusal: Refusal): void {
    this.#polls.rejected(refusal, this.peer);
  }
}

const ended: GrpcStatus = { code: Code.OK, message: '' };
