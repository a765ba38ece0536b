import type { Charged } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import type { WantedMetadata } from '../../model/node-path.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import {
  encoding,
  type Holding,
  type ItemState,
  type MissingEntry,
  type Response,
  type WholeState,
} from '../../model/subscription.ts';
import { knownTypes, type TypeInfo } from '../../model/types.ts';
import type { Account } from '../../wire/accounts.ts';
import { DRAINING } from '../../wire/drain.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import { exhausted, faulty, malformed, noFirstRequest, type Refusal, stalled } from '../../wire/refusal.ts';
import { readRequest, sotwSelectors } from '../../wire/requests.ts';
import type { FaultReason, Peer, ServerStream, StreamHandler } from '../../wire/server-stream.ts';
import {
  denied,
  deniesAll,
  excessOf,
  excessOfNames,
  heldTooMuch,
  refusedUpstream,
  tooLarge,
  unavailable,
} from '../admission.ts';
import type { ClientTransport, DownstreamServices, SessionShare } from '../services.ts';
import { selectState } from '../type-stream.ts';
import { lingerMs, type Poll, type PolledNames, PollingClients } from './polling-clients.ts';

const sweepMs = 5000;
/** Of all classes together, whoever polls: names, classes, and bytes of responses. The least recently polled ends first. */
const maxNames = 2_000_000;
const maxClasses = 20_000;
/** Of the responses that they keep. */
const maxBytes = 256 << 20;
/** A class of so many names costs as much as two (`Quota`). */
const namesPerChange = 500;

/** Why nothing is answered to this peer now; undefined: it is. */
export type RefusesPolls = (peer: Peer, info: TypeInfo) => Refusal | undefined;

/** A poll as it was read, while the rules hold by which it was. */
export interface ReadPoll {
  readonly poll: Poll;
  readonly transport: ClientTransport;
  readonly generation: number;
  /** Where it was answered before. */
  class: PollClass | undefined;
  /** Of its client, as it is listed. */
  names: PolledNames | undefined;
}

/** What clients ask for in single requests: REST polls and the unary Fetch (protocol §7). */
export class Polls {
  readonly #services: DownstreamServices;
  readonly #refuses: RefusesPolls;
  readonly clients: PollingClients;
  /** The least recently polled first. */
  readonly #classes = new Map<string, PollClass[]>();
  readonly #used = new Set<PollClass>();
  #names = 0;
  #bytes = 0;
  /** Grows with each change of the rules. */
  #generation = 0;
  #sweep: Timer | undefined;
  #ended = false;

  /** `clientPrefix`: before the numbers that are the ids of clients. */
  constructor(services: DownstreamServices, refuses: RefusesPolls, clientPrefix: string) {
    this.#services = services;
    this.#refuses = refuses;
    this.clients = new PollingClients(services, clientPrefix);
  }

  /** The open classes, for metrics. */
  classes(): Iterable<PollClass> {
    return this.#used.values();
  }

  /** Why this peer is refused whatever it asks for. */
  refusal(peer: Peer, info: TypeInfo): GrpcStatus | undefined {
    const refusal = this.#ended ? draining : this.#refuses(peer, info);
    if (refusal !== undefined) this.#services.events.rejected(refusal.reason, refusal.logged, { peer });
    return refusal?.status;
  }

  read(info: TypeInfo, bytes: Buffer, peer: Peer, transport: ClientTransport): Result<ReadPoll, GrpcStatus> {
    const read = this.#pollOf(info, bytes, peer, transport);
    if (!read.ok) return fail(this.rejected(read.error));
    const generation = this.#generation;
    return ok({ poll: read.value, transport, generation, class: undefined, names: undefined });
  }

  /** Reads a DiscoveryRequest that stands for itself: it must carry the node, and the path says the type (§7.1). */
  #pollOf(info: TypeInfo, bytes: Buffer, peer: Peer, transport: ClientTransport): Result<Poll, Refusal> {
    const services = this.#services;
    const read = readRequest(bytes, 'sotw');
    if (!read.ok) return fail(malformed(read.error));
    const { typeUrl, node, subscribe: selectors, version, error } = read.value;
    if (typeUrl !== '' && typeUrl !== info.url) {
      return fail(malformed(`type_url ${JSON.stringify(typeUrl)} where ${info.url} is served`, 'type'));
    }
    if (node === undefined) return fail(malformed('the request must carry node', 'no_node'));
    const context = services.context(node, peer);
    if (!context.ok) return fail({ reason: 'node', status: context.error });
    const client = context.value;
    if (client.access.deniesEverything(info.url))
      return fail(denied(`this client may not subscribe to ${info.url}`));
    const limits = client.exempt ? undefined : services.limits();
    const names = limits && excessOfNames(selectors, sotwSelectors, limits);
    if (names !== undefined) return fail(exhausted('subscriptions', names));
    // As the first SotW request of a stream (§3.6): each poll stands for itself.
    const selected = selectState(selectors, info.url, client, services);
    if (!selected.ok) return fail(malformed(selected.error));
    const selection = selected.value;
    if (deniesAll(client, info.url, selection)) {
      return fail(
        denied(`this client may not subscribe to any of the ${info.short} resources that it names`),
      );
    }
    const excess = limits && excessOf({ url: info.url, selection }, [], limits);
    if (excess !== undefined) return fail(exhausted('subscriptions', excess));
    const encoded = encoding({
      protocol: 'sotw',
      wrapped: client.wrapped,
      ttl: client.ttl,
      constrained: services.constrained(),
      // Over REST version_info says what is in the response, so that 304 can be told (§7.3).
      contentVersions: transport === 'rest' || services.contentVersions(),
      unknownNames: false,
      absencesUnsaid: false,
    });
    return ok({ info, client, selection, encoding: encoded, version, error });
  }

  /** What is read of a node's metadata; undefined: all of it. */
  get wantedMetadata(): WantedMetadata | undefined {
    return this.#services.wantedMetadata?.();
  }

  /** The rules by which it was read are in force. */
  isCurrent({ generation }: ReadPoll): boolean {
    return generation === this.#generation;
  }

  /** So much work for one request counts as changes of subscriptions do; false: the peer has done too much. */
  admitsWork(peer: Peer, cost: number): boolean {
    if (peer.account.change(cost)) return true;
    this.#services.events.rejected('rate', undefined, { peer });
    return false;
  }

  /** Calls back once, at once or later. The function returned gives the poll up. */
  ask(read: ReadPoll, peer: Peer, patience: Patience, answered: (outcome: PollOutcome) => void): () => void {
    const { poll } = read;
    this.#count(poll, peer);
    read.names = this.clients.polled(poll, read.transport, peer, read.names);
    const known = read.class?.closed === false ? read.class : this.#find(poll);
    const found = known === undefined ? this.#open(poll, peer) : ok(known);
    if (!found.ok) {
      answered({ kind: 'refused', status: this.rejected(found.error) });
      return () => {};
    }
    read.class = found.value;
    this.#used.delete(found.value);
    this.#used.add(found.value);
    const giveUp = found.value.ask(read, peer, patience, (outcome) => {
      if (outcome.kind === 'unchanged') this.#told(read, outcome.version, outcome.version);
      answered(outcome);
    });
    this.#makeRoom();
    return giveUp;
  }

  /** It was handed to the client. */
  sent(
    read: ReadPoll,
    { response, version }: Extract<PollOutcome, { kind: 'response' }>,
    bytes: Buffer,
  ): void {
    const { poll, transport } = read;
    this.#services.events.response(poll.info.url, transport, { bytes, receivedAt: undefined });
    this.#told(read, response.version, version);
  }

  /** Upstreams have gone down. */
  failHopeless(): void {
    for (const one of this.#used) one.failIfHopeless();
  }

  /** Rules have changed: who polls is looked at anew. */
  reidentify(): void {
    this.#generation++;
    this.clients.forgetOrder();
    const message = 'the rules have changed meanwhile: ask again';
    this.#endAll({ reason: 'rules', status: { code: Code.UNAVAILABLE, message } });
  }

  /** Some clients are on another side now: what was read of requests does not hold for them. */
  rereadRequests(): void {
    this.#generation++;
  }

  /** From now on nothing is answered, and who waits is told so. */
  drain(): void {
    this.#ended = true;
    this.#sweep?.cancel();
    this.clients.stop();
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

  #find(poll: Poll): PollClass | undefined {
    return this.#classes.get(keyOf(poll))?.find((one) => one.takes(poll));
  }

  #open(poll: Poll, peer: Peer): Result<PollClass, Refusal> {
    const { selection, info, client } = poll;
    if (!client.exempt && !peer.account.change(1 + Math.floor(selection.size / namesPerChange))) {
      return fail({ reason: 'rate', status: tooFast });
    }
    const share = client.exempt ? undefined : this.#services.sessions?.(peer);
    const excess = share?.take([{ url: info.url, selection }]);
    if (excess !== undefined) {
      return fail(exhausted('upstream_sessions', excess));
    }
    const opened = new PollClass(poll, peer, share, this.#services, (bytes) => {
      this.#bytes += bytes;
    });
    const key = keyOf(poll);
    this.#classes.set(key, [...(this.#classes.get(key) ?? []), opened]);
    this.#used.add(opened);
    this.#names += selection.size;
    const held = heldTooMuch(peer);
    if (held !== undefined) {
      this.#end(opened);
      return fail(held);
    }
    this.#makeRoom();
    this.#sweepLater();
    return ok(opened);
  }

  #makeRoom(): void {
    for (const one of this.#used) {
      if (this.#names <= maxNames && this.#used.size <= maxClasses && this.#bytes <= maxBytes) return;
      if (!one.holds && this.#used.size > 1) this.#end(one);
    }
  }

  #end(one: PollClass): void {
    const key = keyOf(one.poll);
    const rest = (this.#classes.get(key) ?? []).filter((other) => other !== one);
    if (rest.length === 0) this.#classes.delete(key);
    else this.#classes.set(key, rest);
    this.#used.delete(one);
    this.#names -= one.poll.selection.size;
    one.close();
  }

  #endAll(refusal: Refusal): void {
    for (const one of [...this.#used]) {
      one.refuseAll(refusal);
      this.#end(one);
    }
  }

  #sweepLater(): void {
    this.#sweep ??= this.#services.clock.after(sweepMs, () => {
      this.#sweep = undefined;
      const latest = this.#services.clock.now() - lingerMs;
      for (const one of [...this.#used]) {
        if (one.polledAt > latest) break;
        if (!one.holds) this.#end(one);
      }
      if (this.#used.size > 0) this.#sweepLater();
    });
  }

  /** Counts it. */
  rejected({ reason, status }: Refusal): GrpcStatus {
    this.#services.events.rejected(reason);
    return status;
  }
}

const draining: Refusal = { reason: 'draining', status: DRAINING };

export const tooFast: GrpcStatus = {
  code: Code.RESOURCE_EXHAUSTED,
  message:
    'this peer changes what it polls too often (limits.subscription_changes_per_second): ask again later',
};

const keyOf = ({ info, selection, client }: Poll): string =>
  `${info.short} ${selection.hash} ${selection.size} ${client.access.key}`;

/** A poll that waits for what is unknown. */
interface HeldPoll {
  readonly poll: Poll;
  readonly patience: Patience;
  /** If its types wait for one another. */
  readonly names: PolledNames | undefined;
  readonly answered: (outcome: PollOutcome) => void;
}

/** All polls of one type, selection and access: one subscription, that lasts from poll to poll (ADR 18). */
class PollClass {
  readonly info: TypeInfo;
  readonly poll: Poll;
  /** By the clock. */
  polledAt: number;
  readonly #state: WholeState;
  #share: SessionShare | undefined;
  readonly #services: DownstreamServices;
  /** Whose it is alone; undefined: several peers' have polled it. */
  #account: Account | undefined;
  /** Those that wait, and until when. */
  readonly #held = new Map<HeldPoll, Timer>();
  #closed = false;

  /** The connection of whoever polled first. */
  readonly #first: WeakRef<Peer>;

  /** `kept`: so many bytes more (or fewer) are kept of its response. */
  constructor(
    poll: Poll,
    peer: Peer,
    share: SessionShare | undefined,
    services: DownstreamServices,
    kept: (bytes: number) => void,
  ) {
    this.#first = new WeakRef(peer);
    this.info = poll.info;
    this.poll = poll;
    this.polledAt = services.clock.now();
    this.#share = share;
    this.#services = services;
    const { encoding, selection, client } = poll;
    this.#state = services.openState(poll.info.url, encoding, selection, client.access, {
      wake: () => this.#wake(),
      payer: peer.account,
      kept,
    });
    this.#account = peer.account;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get holds(): boolean {
    return this.#held.size > 0;
  }

  /** While it shows what has this version: what that is. */
  holdings(said: ItemState, version: string): Iterable<Holding> {
    return this.#closed ? [] : this.#state.holdings(said, version);
  }

  get missing(): readonly MissingEntry[] {
    return this.#closed ? [] : this.#state.missing;
  }

  takes({ info, selection, encoding, client }: Poll): boolean {
    const own = this.poll;
    return (
      own.info === info &&
      own.encoding === encoding &&
      own.client.access.key === client.access.key &&
      (own.selection === selection || own.selection.equals(selection))
    );
  }

  /** Answers at once, or later. The function returned gives the poll up. */
  ask(
    { poll, names }: ReadPoll,
    peer: Peer,
    patience: Patience,
    answered: (outcome: PollOutcome) => void,
  ): () => void {
    const { account } = peer;
    const { clock } = this.#services;
    if (this.#first.deref() !== peer && account.excess === undefined) this.#state.keep();
    if (account !== this.#account && this.#account !== undefined) {
      this.#account = undefined;
      this.#state.share();
    }
    this.polledAt = clock.now();
    const held: HeldPoll = { poll, patience, names: patience.unchanged ? names : undefined, answered };
    const outcome = this.#outcomeOf(held, patience.milliseconds <= 0) ?? this.#refusal(this.#hopeless());
    if (outcome !== undefined) {
      answered(outcome);
      return () => {};
    }
    const timer = clock.after(patience.milliseconds, () => this.#answer(held, true));
    this.#held.set(held, timer);
    return () => this.#release(held);
  }

  /** Upstreams have gone down: nothing can become known for those that wait. */
  failIfHopeless(): void {
    if (this.#held.size === 0) return;
    const refusal = this.#hopeless();
    if (refusal !== undefined) this.refuseAll(refusal);
  }

  refuseAll({ reason, status }: Refusal): void {
    for (const held of [...this.#held.keys()]) {
      this.#release(held);
      this.#services.events.rejected(reason);
      held.answered({ kind: 'refused', status });
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#share?.release();
    // It holds the connection of whoever polled first.
    this.#share = undefined;
    this.#state.close();
  }

  #wake(): void {
    for (const held of [...this.#held.keys()]) this.#answer(held, false);
  }

  #answer(held: HeldPoll, timeIsUp: boolean): void {
    const outcome = this.#outcomeOf(held, timeIsUp);
    if (outcome === undefined) return;
    this.#release(held);
    held.answered(outcome);
  }

  /** Undefined: more may be known before the time is up (protocol §7.4). */
  #outcomeOf({ poll, patience, names }: HeldPoll, timeIsUp: boolean): PollOutcome | undefined {
    const { version, resolved } = this.#state;
    if (!resolved && !timeIsUp) return undefined;
    if (patience.unchanged && poll.version === version) {
      names?.hasAll(poll);
      return { kind: 'unchanged', version };
    }
    if (!resolved && !this.#isAnswerable(poll, patience)) return this.#refusal(unanswered);
    const next = names?.next(poll, version);
    if (next === 'UNCHANGED') return { kind: 'unchanged', version: poll.version };
    const response = next ?? this.#state.take();
    const { length } = response.bytes;
    const { maxResponseBytes = length } = this.#services.limits();
    if (length <= maxResponseBytes || poll.client.exempt) return { kind: 'response', response, version };
    return this.#refusal(tooLarge(this.info.short, length, maxResponseBytes));
  }

  /** Unknown is not absent (§3.9): an answer that lacks what is unknown must not delete it. */
  #isAnswerable({ version }: Poll, { whenUnknown }: Patience): boolean {
    const { complete, collectionsResolved, allUnknown } = this.#state;
    if (complete) return collectionsResolved && !allUnknown && version === '';
    return !allUnknown || whenUnknown === 'EMPTY';
  }

  #release(held: HeldPoll): void {
    this.#held.get(held)?.cancel();
    this.#held.delete(held);
  }

  #hopeless(): Refusal | undefined {
    const { info } = this;
    const { selection, allUnknown } = this.#state;
    const types = [{ info, selection, subscription: { responded: false, allUnknown } }];
    return unavailable(types, this.#services) ?? refusedUpstream(types, this.#services);
  }

  #refusal(refusal: Refusal | undefined): PollOutcome | undefined {
    if (refusal === undefined) return undefined;
    this.#services.events.rejected(refusal.reason);
    return { kind: 'refused', status: refusal.status };
  }
}

const unanswered: Refusal = {
  reason: 'unknown',
  status: {
    code: Code.UNAVAILABLE,
    message:
      'no control plane has answered yet for what this request names, and a response without it would delete it: ask again',
  },
};

/** What a poll is answered with. */
export type PollOutcome =
  /** `version`: of what it shows. */
  | { readonly kind: 'response'; readonly response: Response; readonly version: string }
  /** The client has this version. */
  | { readonly kind: 'unchanged'; readonly version: string }
  | { readonly kind: 'refused'; readonly status: GrpcStatus };

/** How long a poll waits for what is unknown, and what it is told then. */
export interface Patience {
  readonly milliseconds: number;
  /** The client takes 304 for an answer. If not, it is sent everything each time. */
  readonly unchanged: boolean;
  /** Nothing is known at the end: the client asks again (REFUSED), or is sent what is known, nothing (EMPTY). */
  readonly whenUnknown: 'REFUSED' | 'EMPTY';
}

/** FetchX of each service (protocol §2), by path. ADS has none. */
export const fetchRoutes: ReadonlyMap<string, TypeInfo> = new Map(
  knownTypes.flatMap((info): [string, TypeInfo][] =>
    info.fetchMethod === undefined ? [] : [[`/${info.service}/${info.fetchMethod}`, info]],
  ),
);

const missing = malformed('a Fetch call takes one DiscoveryRequest: none came');

/** One unary Fetch: one request, one response with what is known (protocol §7.5). */
export class FetchCall implements StreamHandler {
  readonly #info: TypeInfo;
  readonly #stream: ServerStream;
  readonly #polls: Polls;
  readonly #services: DownstreamServices;
  /** How long it waits for what is unknown. */
  readonly #milliseconds: number;
  #cancel: (() => void) | undefined;
  /** Bytes of the answer that its client has not taken at once. */
  #unread = 0;
  /** For the request, and then for a client that does not read. */
  #timer: Timer;

  constructor(
    info: TypeInfo,
    stream: ServerStream,
    polls: Polls,
    services: DownstreamServices,
    milliseconds: number,
  ) {
    this.#milliseconds = milliseconds;
    this.#info = info;
    this.#stream = stream;
    this.#polls = polls;
    this.#services = services;
    const { firstRequestMilliseconds } = services.limits();
    this.#timer = this.#waitForRequest(firstRequestMilliseconds, noFirstRequest(firstRequestMilliseconds));
  }

  /** The call may have been kept waiting for its peer's turn, for so long already: that does not count. */
  #waitForRequest(milliseconds: number, refusal: Refusal, waited = 0): Timer {
    return this.#services.clock.after(milliseconds, () => {
      const { waitedMilliseconds } = this.#stream;
      const more = waitedMilliseconds - waited;
      if (more > 0) this.#timer = this.#waitForRequest(more, refusal, waitedMilliseconds);
      else this.#refuse(refusal);
    });
  }

  message(bytes: Charged): void {
    if (this.#cancel !== undefined) {
      this.#refuse(malformed('a Fetch call takes one DiscoveryRequest: another one came'));
      return;
    }
    this.#timer.cancel();
    const { peer } = this.#stream;
    const read = this.#polls.read(this.#info, bytes, peer, 'fetch');
    if (!read.ok) {
      this.#stream.end(read.error);
      return;
    }
    const patience = {
      milliseconds: this.#milliseconds,
      unchanged: false,
      whenUnknown: 'EMPTY',
    } as const;
    this.#cancel = () => {};
    this.#cancel = this.#polls.ask(read.value, peer, patience, (outcome) => {
      if (outcome.kind !== 'response') {
        this.#stream.end(outcome.kind === 'refused' ? outcome.status : ended);
        return;
      }
      const { bytes } = outcome.response;
      this.#polls.sent(read.value, outcome, bytes);
      if (this.#stream.write(bytes)) this.#stream.end(ended);
      else this.#waitForReader(bytes.length);
    });
  }

  ended(): void {
    if (this.#cancel === undefined) this.#refuse(missing);
  }

  drained(): void {
    this.#stream.end(ended);
  }

  faulted(status: GrpcStatus, why?: FaultReason): void {
    this.#refuse(faulty(status, why));
  }

  closed(): void {
    this.#timer.cancel();
    this.#stream.peer.account.keeps(-this.#unread);
    this.#unread = 0;
    this.#cancel?.();
  }

  #waitForReader(unread: number): void {
    this.#unread = unread;
    this.#stream.peer.account.keeps(unread);
    const { clock, limits } = this.#services;
    const { stalledMilliseconds } = limits();
    this.#timer = clock.after(stalledMilliseconds, () => this.#refuse(stalled(stalledMilliseconds)));
  }

  #refuse({ reason, status }: Refusal): void {
    this.#services.events.rejected(reason);
    this.#stream.end(status);
  }
}

const ended: GrpcStatus = { code: Code.OK, message: '' };
