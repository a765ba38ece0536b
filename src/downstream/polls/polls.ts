import type { Timer } from '../../model/clock.ts';
import type { WantedMetadata } from '../../model/node-path.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { TypeInfo } from '../../model/types.ts';
import { DRAINING } from '../../wire/drain.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import type { Peer } from '../../wire/server-stream.ts';
import { heldTooMuch, type Refusal } from '../admission.ts';
import type { ClientTransport, DownstreamServices } from '../services.ts';
import type { StreamRefusal } from '../xds-server.ts';
import { type Patience, type Poll, PollClass, type PollOutcome, readPoll } from './poll-class.ts';
import { lingerMs, type PolledNames, PollingClients } from './polling-clients.ts';

const sweepMs = 5000;
/** Of all classes together, whoever polls: names, classes, and bytes of responses. The least recently polled ends first. */
const maxNames = 2_000_000;
const maxClasses = 20_000;
/** Of the responses that they keep. */
const maxBytes = 256 << 20;
/** A class of so many names costs as much as two (`ChangeRate`). */
const namesPerChange = 500;

export interface PollsOptions {
  /** Why nothing is answered to this peer now, if so. */
  readonly refuses: (peer: Peer, info: TypeInfo) => StreamRefusal | undefined;
  /** Before the numbers that are the ids of clients. */
  readonly clientPrefix: string;
}

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
  readonly #options: PollsOptions;
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

  constructor(services: DownstreamServices, options: PollsOptions) {
    this.#services = services;
    this.#options = options;
    this.clients = new PollingClients(services, options.clientPrefix);
  }

  /** The open classes, for metrics. */
  classes(): Iterable<PollClass> {
    return this.#used.values();
  }

  /** Why this peer is refused whatever it asks for. */
  refusal(peer: Peer, info: TypeInfo): GrpcStatus | undefined {
    const refusal = this.#ended
      ? { reason: 'draining', status: DRAINING }
      : this.#options.refuses(peer, info);
    if (refusal !== undefined) this.#services.events.rejected(refusal.reason, refusal.logged, { peer });
    return refusal?.status;
  }

  read(info: TypeInfo, bytes: Buffer, peer: Peer, transport: ClientTransport): Result<ReadPoll, GrpcStatus> {
    // Over REST version_info says what is in the response, so that 304 can be told (§7.3).
    const contentVersions = transport === 'rest' || this.#services.contentVersions();
    const read = readPoll(info, bytes, peer, contentVersions, this.#services);
    if (!read.ok) return fail(this.rejected(read.error));
    return ok({
      poll: read.value,
      transport,
      generation: this.#generation,
      class: undefined,
      names: undefined,
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

  /** A request could not be read. */
  malformed(): void {
    this.#services.events.rejected('malformed');
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
    const ordered = patience.unchanged ? read.names : undefined;
    const giveUp = found.value.ask(poll, peer, patience, ordered, (outcome) => {
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
    this.#endAll({ reason: 'draining', status: DRAINING });
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
      return fail({
        reason: 'upstream_sessions',
        status: { code: Code.RESOURCE_EXHAUSTED, message: excess },
      });
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

export const tooFast: GrpcStatus = {
  code: Code.RESOURCE_EXHAUSTED,
  message:
    'this peer changes what it polls too often (limits.subscription_changes_per_second): ask again later',
};

const keyOf = ({ info, selection, client }: Poll): string =>
  `${info.short} ${selection.hash} ${selection.size} ${client.access.key}`;
