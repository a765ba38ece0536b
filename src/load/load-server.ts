import type { Charged } from '../model/brand.ts';
import { type Clock, Sweep, type Timer } from '../model/clock.ts';
import {
  itsOwn,
  type LoadOrigin,
  type LoadStream,
  type LoadTarget,
  type LoadTotals,
  type LoadUpstream,
} from '../model/load.ts';
import { areSame, getOrMake } from '../model/maps.ts';
import { errorMessage, type Result } from '../model/result.ts';
import { atOnce, type InTurns, OverTurns } from '../model/time-slices.ts';
import { ClientStream, OpenStreams, overdueCheckMs, type StreamPlaces } from '../wire/client-stream.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { exhausted, heldBytes, malformed, type Refusal, rulesChanged } from '../wire/refusal.ts';
import type { Peer, ServerStream } from '../wire/server-stream.ts';
import {
  allClusters,
  type Instruction,
  joined,
  readInstruction,
  restricted,
  type Wanted,
} from './instruction.ts';
import { LoadView, type ReportingClass } from './load-view.ts';
import { lengthOfFirstNode, nodeOf, Reading, TooMuchNoted } from './reading.ts';
import { Reporter } from './rows.ts';
import { LoadSums, type TakenSums } from './sums.ts';

/** Who reports. */
export interface ReportingClient {
  /** Undefined: it is a worker, which shows itself what its clients report. */
  readonly of: ReportingClass | undefined;
  readonly origin: LoadOrigin;
  /** Whether it may know of a cluster, and report it: one for all who know the same. Undefined: of all. */
  readonly mayKnow: ((cluster: string) => boolean) | undefined;
  /** The sessions that get its reports. They change with what the client subscribes to; else it is the same value. */
  targets(): readonly LoadTarget[];
  /** A report has come, so many milliseconds after the last one. */
  reported(totals: LoadTotals, milliseconds: number): void;
  /** It reports no more. */
  left(): void;
  /** The same client by new rules; undefined: they need what was not kept of its node. */
  byNewRules(): ReportingClient | undefined;
}

interface LoadServerOptions {
  readonly clock: Clock;
  /** By its node. The error ends its stream. `stream`: an id that no other one has. */
  readonly identify: (node: Buffer, peer: Peer, stream: string) => Result<ReportingClient, GrpcStatus>;
  readonly limits: () => {
    /** Of one client. */
    readonly maxLoadReportClusters: number;
    readonly firstRequestTimeoutMs: number;
    readonly stalledTimeoutMs: number;
  };
  /** Of all upstreams together, and how many of them one peer may make. */
  readonly maxSessions: () => { readonly all: number; readonly ofPeer: number };
  /** How often the relay itself wants reports of all clusters, in milliseconds; undefined: it wants none. */
  readonly ownIntervalMs: () => number | undefined;
  /** Undefined: there is none of this name. */
  readonly upstream: (name: string) => LoadUpstream | undefined;
  /** Of a message with sums, in bytes. What is larger is several, and only the last one's gauges count where they go. */
  readonly largestMessage?: number;
  /** Something of this upstream waits that not all clients have. */
  readonly holdsBack: (upstream: string) => boolean;
  /** Undefined: nothing bounds the streams. */
  readonly places?: StreamPlaces;
  readonly events: {
    /** A stream is refused, ends, or is read no further for a while. */
    rejected(refusal: Omit<Refusal, 'status'>, peer: Peer): void;
    /** Counts the sums that were handed over to this upstream. */
    sent(upstream: string): { inc(): void };
    /** So many clusters of a report were left out (limits.max_load_report_clusters, or what its peer holds). */
    left(count: number): void;
    /** What a control plane asked for is malformed. */
    malformed(upstream: string, reason: string): void;
  };
}

/** How often it is looked up to which control planes clients report, in checks: they may subscribe to others. */
const checksForTargets = 5;
/**
 * And with each of so many first messages, as their client may have subscribed only now. The first of them is no report as
 * a rule. A look takes longer than many reports.
 */
const early = 4;
/** A place of an account. */
const madeSessions = 'load sessions';

/** Load reports (LRS, protocol §5c): clients' streams, and a session for each control plane session that takes them. */
export class LoadServer extends OpenStreams<ClientReports> {
  readonly options: LoadServerOptions;
  /** For operators. */
  readonly view: LoadView;
  #instruction: Instruction | undefined;
  /** They are still known by the rules of before: nothing more of them counts until they are looked at. */
  readonly outdated: OverTurns<ClientReports>;
  /** They have still to hear what is asked of them. */
  readonly #untold: OverTurns<ClientReports>;
  /** By upstream and parameters. */
  readonly #sessions = new Map<string, SessionLoad>();

  constructor(options: LoadServerOptions) {
    const limits = () => {
      const { firstRequestTimeoutMs, stalledTimeoutMs } = options.limits();
      return { firstRequestMilliseconds: firstRequestTimeoutMs, stalledMilliseconds: stalledTimeoutMs };
    };
    super(options.clock, limits, options.places);
    this.options = options;
    this.view = new LoadView(options.clock);
    this.#untold = new OverTurns(options.clock, (stream) => {
      this.#untold.delete(stream);
      stream.instructed();
    });
    this.outdated = new OverTurns(options.clock, (stream) => stream.reidentify());
    let checks = 0;
    new Sweep(options.clock, overdueCheckMs, () => {
      if (++checks % checksForTargets === 0) this.chooseAgain();
      return true;
    }).start();
  }

  /** What the relay itself asks for; undefined: nothing. The same value as long as it is the same. */
  get instruction(): Instruction | undefined {
    const intervalMs = this.options.ownIntervalMs();
    if (this.#instruction?.intervalMs !== intervalMs)
      this.#instruction = intervalMs === undefined ? undefined : allClusters(intervalMs);
    return this.#instruction;
  }

  /** Streams to control planes that have asked for reports. */
  get sessions(): number {
    return this.#sessions.values().reduce((sum, { isAsked }) => sum + Number(isAsked), 0);
  }

  accept(stream: ServerStream): void {
    this.take(stream, (id) => new ClientReports(stream, this, id));
  }

  /** Rules or upstreams have changed. */
  reload(): void {
    const { upstream } = this.options;
    const isGone = ({ target }: SessionLoad): boolean => upstream(target.upstream) === undefined;
    for (const stream of [...this.values()])
      if (stream.sessions.values().some(isGone)) stream.finishReading();
    for (const session of [...this.#sessions.values()]) session.reload();
    this.outdated.addAll(this.values());
  }

  /** Clients may have subscriptions of other control planes now. */
  chooseAgain(): void {
    for (const stream of [...this.values()]) stream.chooseAgain();
  }

  /** Sends what is left to be sent. */
  async drain(): Promise<void> {
    for (const stream of [...this.values()]) {
      if (!stream.isReading) continue;
      stream.finishReading();
      await new Promise(setImmediate);
    }
    await Promise.all([...this.#sessions.values()].map((session) => session.finish()));
  }

  /** They may be a fleet, so they hear over several turns what is asked of them by then. */
  tell(streams: Iterable<ClientReports>): void {
    this.#untold.addAll(streams);
  }

  /** The session of a target, which exists from now on; undefined: there is no such upstream, or no place. */
  session(target: LoadTarget, { peer, refused }: ClientReports): SessionLoad | undefined {
    const { account } = peer;
    const key = JSON.stringify([target.upstream, target.parameters.key]);
    const known = this.#sessions.get(key);
    if (known !== undefined) return known;
    const { all, ofPeer } = this.options.maxSessions();
    if (this.#sessions.size >= all || (!account.exempt && account.count(madeSessions) >= ofPeer)) {
      const message = `${all} sessions for load reports, or ${ofPeer} of them by ${account.key}: no more are opened (limits.max_upstream_sessions)`;
      if (!refused.has(target)) this.options.events.rejected(exhausted('upstream_sessions', message), peer);
      refused.add(target);
      return undefined;
    }
    const over = (): void => {
      if (this.#sessions.delete(key)) account.leave(madeSessions);
    };
    const session = new SessionLoad(target, this, over);
    if (session.isOver) return undefined;
    account.enter(madeSessions);
    this.#sessions.set(key, session);
    return session;
  }
}

/** Longer reports, not counting their nodes, are read in turns. Bytes. */
const largeReport = 32 * 1024;

/** One client's stream of reports. */
class ClientReports extends ClientStream<ReportingClient> {
  readonly #server: LoadServer;
  /** To which it reports, and whose they are. */
  sessions: ReadonlySet<SessionLoad> = new Set();
  #targets: readonly LoadTarget[] = [];
  #messages = 0;
  /** Those for which there was no place: they are looked up again every few seconds, and count as refused once. */
  readonly refused = new WeakSet<LoadTarget>();
  /** Of the sessions, and of the relay. */
  #heard: readonly Instruction[] = [];
  #told: Instruction | undefined;
  /** When its last message came, by `Clock.monotonic()`. */
  #reportedAt = 0;
  /** A report is not read to its end yet: nothing that it counts for may go away. */
  isReading = false;
  #isClosed = false;

  constructor(stream: ServerStream, server: LoadServer, id: string) {
    super(id, stream, server.options.clock);
    this.#server = server;
  }

  get origin(): LoadOrigin {
    return this.client?.origin ?? itsOwn;
  }

  message(bytes: Charged): void {
    if (this.#server.outdated.has(this)) this.reidentify();
    if (this.isOver) return;
    if (this.#messages++ < early) this.chooseAgain();
    const start = lengthOfFirstNode(bytes);
    if (bytes.length - start < largeReport) {
      atOnce(this.#report(bytes, start));
      return;
    }
    const copy = Buffer.from(bytes);
    this.handleInTurns(copy.length, () => this.#report(copy, start));
  }

  override drained(): void {
    super.drained();
    this.#server.tell([this]);
  }

  override closed(): void {
    super.closed();
    this.#isClosed = true;
    this.#goIfOver();
  }

  /**
   * Tells the client what is asked of it now. Nothing was asked so far: nothing is said. An empty list would mean all.
   */
  instructed(): void {
    if (this.isOver || this.isBlocked) return;
    const all = [...this.sessions, this.#server].flatMap(({ instruction }) => instruction ?? []);
    // Looked at every few seconds, for each stream: nothing is encoded while they are the same.
    if (areSame(this.#heard, all)) return;
    this.#heard = all;
    const mayKnow = this.client?.mayKnow;
    const asked = joined(mayKnow === undefined ? all : all.flatMap((one) => restricted(one)(mayKnow)));
    if (asked === undefined || this.#told?.frame.equals(asked.frame) === true) return;
    this.#told = asked;
    this.write(asked.frame);
  }

  /** By new rules, when what is read is read to its end. */
  reidentify(): void {
    if (this.isReading) return;
    this.#server.outdated.delete(this);
    if (this.isOver || this.client === undefined) return;
    const again = this.client.byNewRules();
    if (again === undefined) {
      this.failFor(rulesChanged);
      return;
    }
    this.client = again;
    // It may be allowed to know others now.
    this.#heard = [];
    this.choose();
  }

  /** `start`: behind its node, if that is its first field. */
  *#report(bytes: Buffer, start: number): InTurns<void> {
    this.isReading = true;
    try {
      const isFirst = this.client === undefined;
      if (this.#identify(yield* nodeOf(bytes))) yield* this.#add(bytes, start, isFirst);
    } catch (thrown) {
      const cause = errorMessage(thrown);
      this.failFor(
        thrown instanceof TooMuchNoted ? heldBytes(cause) : malformed(`malformed LoadStatsRequest: ${cause}`),
      );
    }
    this.isReading = false;
    this.#goIfOver();
    if (this.#server.outdated.has(this)) this.reidentify();
  }

  /** True: it is known who the client is. */
  #identify(shown: Buffer | undefined): boolean {
    const node = this.newNode(shown);
    const read = node && this.#server.options.identify(node, this.peer, this.id);
    if (read?.ok === false) {
      this.failFor({ reason: 'node', status: read.error });
      return false;
    }
    if (read !== undefined) {
      if (this.client !== undefined) this.#spend();
      this.client = read.value;
      this.#heard = [];
      this.choose();
    }
    return this.client !== undefined;
  }

  /** Another node may open sessions, so it costs as much as a change of subscriptions does. */
  #spend(): void {
    const wait = this.peer.account.changed(1);
    if (wait === 0) return;
    this.#server.options.events.rejected({ reason: 'rate' }, this.peer);
    this.pauseReading(wait);
  }

  /** Asked for each stream every few seconds: where nothing has changed, nothing is done. */
  chooseAgain(): void {
    if (this.isReading || this.isOver || this.client === undefined) return;
    const isSame = this.client.targets() === this.#targets && this.#targets.length === this.sessions.size;
    if (!isSame || this.sessions.values().some(({ isOver }) => isOver)) this.choose();
  }

  /** To whom it reports. A session that it reports to already knows what it has said. */
  choose(): void {
    if (this.isOver || this.client === undefined) return;
    const { maxLoadReportClusters } = this.#server.options.limits();
    const most = this.peer.account.exempt ? Number.POSITIVE_INFINITY : maxLoadReportClusters;
    const targets = this.client.targets();
    this.#targets = targets;
    const before = this.sessions;
    this.sessions = new Set(targets.flatMap((target) => this.#server.session(target, this) ?? []));
    for (const session of this.sessions) session.join(this, most);
    for (const session of before.difference(this.sessions)) session.leave(this);
    this.#server.tell([this]);
  }

  /** The first one says who the client is; where it comes again, it may have something to report. */
  *#add(bytes: Buffer, start: number, isFirst: boolean): InTurns<void> {
    const { events, clock } = this.#server.options;
    const mayKnow = this.client?.mayKnow;
    const into = [...this.sessions].flatMap((session) => session.reading(this, mayKnow) ?? []);
    // Into no sums it is read for its totals.
    const [first = new Reading(undefined, undefined, undefined, mayKnow), ...others] = into;
    const readings = [first, ...others];
    const { totals, clusters } = first;
    let left = 0;
    try {
      for (const reading of readings) yield* reading.read(bytes, start);
      for (const reading of readings) left = Math.max(left, yield* reading.apply());
    } finally {
      for (const reading of readings) reading.close();
    }
    const now = clock.monotonic();
    const of = this.client?.of;
    if (of !== undefined) this.#server.view.add(of, this.peer.account, clusters);
    if (!isFirst || totals.clusters > 0) this.client?.reported(totals, isFirst ? 0 : now - this.#reportedAt);
    this.#reportedAt = now;
    if (left > 0) events.left(left);
  }

  protected rejected({ reason }: Refusal): void {
    this.#server.options.events.rejected({ reason }, this.peer);
  }

  override end(status: GrpcStatus): void {
    super.end(status);
    this.#goIfOver();
  }

  #goIfOver(): void {
    if (!this.isOver || this.isReading) return;
    this.client?.left();
    this.client = undefined;
    for (const session of this.sessions) session.leave(this);
    this.sessions = new Set();
    if (this.#isClosed) this.#server.delete(this.id);
  }
}

/** Of a control plane that has not asked yet. */
const nothingAsked: Wanted = { clusters: new Set(), endpoints: false };

/**
 * The load of one session: who reports, the sums of what they said, and the stream that takes them. It lives from its
 * first client until the last one has left and its sums are sent.
 */
class SessionLoad {
  readonly target: LoadTarget;
  readonly #sent: { inc(): void };
  readonly #sums = new LoadSums();
  readonly #reporters = new Map<ClientReports, Reporter>();
  readonly #server: LoadServer;
  readonly #over: () => void;
  #upstream: LoadUpstream | undefined;
  #stream: LoadStream | undefined;
  /** What the control plane asks for; undefined: nothing so far. */
  instruction: Instruction | undefined;
  /** The control plane has said on this stream that it takes reports. */
  isAsked = false;
  /** Reported on this stream, and not handed over yet. */
  #taken: (TakenSums & { readonly stream: LoadStream | undefined }) | undefined;
  #timer: Timer | undefined;
  /** Nobody reports any more, and nothing is left to be sent; or the upstream is gone. */
  isOver = false;

  constructor(target: LoadTarget, server: LoadServer, over: () => void) {
    this.target = target;
    this.#server = server;
    this.#over = over;
    this.#sent = server.options.events.sent(target.upstream);
    this.reload();
  }

  /** Who reports already goes on. */
  join(client: ClientReports, most: number): void {
    getOrMake(this.#reporters, client, () => new Reporter(client.peer.account, most)).maxClusters = most;
  }

  leave(client: ClientReports): void {
    const reporter = this.#reporters.get(client);
    if (reporter !== undefined) this.#sums.leave(reporter);
    this.#reporters.delete(client);
    this.#endIfDone();
  }

  /** Of a report: its client may be asked for more, or say more than it is asked for. */
  reading(client: ClientReports, mayKnow: ReportingClient['mayKnow']): Reading | undefined {
    const reporter = this.#reporters.get(client);
    return reporter && this.#sums.reading(reporter, this.instruction ?? nothingAsked, mayKnow);
  }

  /** Upstreams may have changed: another one of the same name gets what this one did not. */
  reload(): void {
    const now = this.#server.options.upstream(this.target.upstream);
    if (now !== undefined && now === this.#upstream) return;
    const before = this.#stream;
    this.#stopAsking();
    // What is on its way may still be handed over.
    void before?.finish().then(() => this.#giveBack(before));
    this.#upstream = now;
    const stream: LoadStream | undefined = now?.openLoadStream(this.target, {
      origin: () => this.#origin(),
      asked: (response) => this.#asked(response),
      down: () => {
        this.#stopAsking();
        this.#giveBack(stream);
      },
    });
    this.#stream = stream;
    if (now === undefined) this.#end();
  }

  /** Of the sums. What is in them was added up once more than what its clients said. */
  #origin(): LoadOrigin {
    const below = [...this.#reporters.keys()].map(({ origin }) => origin);
    return {
      stages: 1 + below.reduce((most, { stages }) => Math.max(most, stages), 0),
      isPartial:
        this.#server.options.holdsBack(this.target.upstream) || below.some(({ isPartial }) => isPartial),
    };
  }

  /** Sends what is left; resolves when that is handed over, or cannot be. */
  async finish(): Promise<void> {
    const stream = this.#stream;
    if (this.isAsked && !this.#sums.isEmpty) reportAll(stream, this.#takeSums(), () => this.#sent.inc());
    this.#end();
    await stream?.finish();
  }

  #asked(response: Buffer): void {
    const read = readInstruction(response);
    if (!read.ok) {
      this.#server.options.events.malformed(this.target.upstream, read.error);
      return;
    }
    const before = this.instruction;
    this.instruction = read.value;
    if (before === undefined) this.#sums.begin(this.#server.options.clock.monotonic());
    if (!this.isAsked || before?.intervalMs !== read.value.intervalMs) this.#schedule();
    this.isAsked = true;
    if (before?.frame.equals(read.value.frame) === true) return;
    this.#server.tell(this.#reporters.keys());
  }

  #schedule(): void {
    this.#timer?.cancel();
    this.#timer = this.#server.options.clock.after(this.instruction?.intervalMs ?? 0, () => {
      this.#schedule();
      // What the control plane does not read is not queued: it is in the next sums.
      if (this.#taken === undefined) this.#report();
    });
  }

  #report(): void {
    const stream = this.#stream;
    const taken = { ...this.#takeSums(), stream };
    this.#taken = taken;
    reportAll(stream, taken, () => {
      if (this.#taken !== taken) return;
      this.#taken = undefined;
      taken.confirm();
      this.#sent.inc();
      this.#endIfDone();
    });
  }

  #takeSums() {
    const { clock, largestMessage } = this.#server.options;
    return this.#sums.take(clock.monotonic(), largestMessage);
  }

  #stopAsking(): void {
    this.#timer?.cancel();
    this.isAsked = false;
  }

  /** What a stream has not handed over when it is over. */
  #giveBack(stream: LoadStream | undefined): void {
    if (this.#taken?.stream === stream) {
      this.#taken?.giveBack();
      this.#taken = undefined;
    }
    this.#endIfDone();
  }

  /** A control plane that has never asked for anything gets nothing. */
  #endIfDone(): void {
    if (this.#reporters.size > 0 || this.isOver) return;
    const isDone = this.#taken === undefined && this.#sums.isEmpty;
    if (!isDone && this.instruction !== undefined) return;
    void this.#stream?.finish();
    this.#end();
  }

  #end(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#timer?.cancel();
    this.#sums.clear();
    this.#over();
  }
}

/** `done`: the last one was handed over, and so were those before it. */
function reportAll(stream: LoadStream | undefined, { messages }: TakenSums, done: () => void): void {
  for (const [index, bytes] of messages.entries())
    stream?.report(bytes, index === messages.length - 1 ? done : () => {});
}
