import type { TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import type { Clock, Timer } from '../model/clock.ts';
import type { Transaction } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';

export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** Where spans go: an OTLP collector, or a test. Nothing waits for it. */
export interface Spans {
  /** Times are by `Clock.monotonic()`. `parent`: a W3C traceparent. Undefined: the span is not sampled. */
  start(
    name: string,
    at: number,
    attributes: Attributes,
    parent?: string,
  ):
    | {
        /** A part of it that is over. */
        child(name: string, from: number, until: number, attributes?: Attributes): void;
        end(at: number, attributes?: Attributes): void;
      }
    | undefined;
  /** Sends what is left, for a short time. */
  stop(): Promise<void>;
}

/** Clients that never answer must not keep a trace open. */
const deadlineMs = 30_000;
/** Traces that are open at a time; an update past that has none. */
const mostOpen = 100;
/** Spans of composed responses in a trace: one for each class of clients and position. */
const mostComposed = 32;

/** Why a trace is over: everybody has answered; nobody subscribes to it; some have not answered in time. */
type End = 'answered' | 'no_subscribers' | 'deadline' | 'shutdown';

const untouched = {
  /** All clients that it is for were told to take it. */
  published: false,
  classes: 0,
  subscribers: 0,
  composed: 0,
  lastHandover: 0,
  handovers: 0,
  accepted: 0,
  rejected: 0,
  lastAnswer: 0,
};

type OpenTrace = typeof untouched & {
  readonly span: NonNullable<ReturnType<Spans['start']>>;
  readonly deadline: Timer;
  readonly commit: Commit;
  readonly judgedAt: number;
  firstHandover?: number;
};

/**
 * The traces of responses from upstream that are sampled: received and judged, applied, composed for each class of
 * clients, handed over, answered. An update is known by `Commit.receivedAt`, which its responses carry anyway, so
 * streams and views keep nothing for it. While no trace is open, an event costs a look at an empty map.
 */
export class UpdateTraces {
  readonly #spans: Spans;
  readonly #clock: Clock;
  readonly #open = new Map<number, OpenTrace>();

  constructor(spans: Spans, clock: Clock) {
    this.#spans = spans;
    this.#clock = clock;
  }

  /** Applied, and not shown to any client yet. `judgedAt`: when it was about to be applied. */
  applied(transaction: Transaction, commit: Commit, judgedAt: number): void {
    const { arrivedAt, type, holder, version } = transaction;
    if (arrivedAt === undefined || this.#open.size >= mostOpen) return;
    const span = this.#spans.start('update', arrivedAt, {
      'distributary.upstream': holder.upstream,
      'distributary.type': typeInfo(type).short,
      'distributary.version': version ?? '',
      'distributary.revision': commit.revision,
      'distributary.resources': transaction.puts.length,
      'distributary.removals': transaction.removals.length,
      'distributary.changed': commit.changed.size,
    });
    if (span === undefined) return;
    span.child('judge', arrivedAt, judgedAt);
    this.#open.set(commit.receivedAt, {
      ...untouched,
      span,
      commit,
      judgedAt,
      deadline: this.#clock.after(deadlineMs, () => this.#end(commit.receivedAt, 'deadline')),
    });
  }

  /** A response was refused as a whole: nothing of it was applied. `arrivedAt` undefined: when is not known. */
  refused(upstream: string, type: TypeUrl, arrivedAt: number | undefined): void {
    if (arrivedAt === undefined) return;
    const attributes = { 'distributary.upstream': upstream, 'distributary.type': typeInfo(type).short };
    const span = this.#spans.start('update', arrivedAt, attributes);
    const now = this.#clock.monotonic();
    span?.child('judge', arrivedAt, now);
    span?.end(now, { 'distributary.end': 'refused' });
  }

  /** Whether somebody has to count whom this commit reaches. */
  isOpen({ receivedAt }: Commit): boolean {
    return this.#open.has(receivedAt);
  }

  /** It changes what a class of clients sees, of which so many will be told. */
  reaches({ receivedAt }: Commit, subscribers: number): void {
    const trace = this.#open.get(receivedAt);
    if (trace === undefined) return;
    trace.classes++;
    trace.subscribers += subscribers;
  }

  /** All that it reaches is known. */
  published({ receivedAt }: Commit): void {
    const trace = this.#open.get(receivedAt);
    if (trace === undefined) return;
    trace.published = true;
    trace.span.child('apply', trace.judgedAt, this.#clock.monotonic());
    if (trace.subscribers === 0) this.#end(receivedAt, 'no_subscribers');
  }

  /** A response was composed, which clients of a class share. */
  composed(receivedAt: number, from: number, bytes: number): void {
    const trace = this.#open.get(receivedAt);
    if (trace === undefined || ++trace.composed > mostComposed) return;
    trace.span.child('compose', from, this.#clock.monotonic(), { 'distributary.bytes': bytes });
  }

  handedOver(receivedAt: number): void {
    const trace = this.#open.size === 0 ? undefined : this.#open.get(receivedAt);
    if (trace === undefined) return;
    trace.lastHandover = this.#clock.monotonic();
    trace.firstHandover ??= trace.lastHandover;
    trace.handovers++;
  }

  /** A client has accepted or rejected it. */
  answered(receivedAt: number, accepted: boolean): void {
    const trace = this.#open.size === 0 ? undefined : this.#open.get(receivedAt);
    if (trace === undefined) return;
    trace[accepted ? 'accepted' : 'rejected']++;
    trace.lastAnswer = this.#clock.monotonic();
    const answers = trace.accepted + trace.rejected;
    const isLast = answers >= trace.handovers && trace.handovers >= trace.subscribers;
    if (trace.published && isLast) this.#end(receivedAt, 'answered');
  }

  /** Ends all of them as they are. */
  async stop(): Promise<void> {
    for (const receivedAt of [...this.#open.keys()]) this.#end(receivedAt, 'shutdown');
    await this.#spans.stop();
  }

  #end(receivedAt: number, why: End): void {
    const trace = this.#open.get(receivedAt);
    if (trace === undefined) return;
    this.#open.delete(receivedAt);
    trace.deadline.cancel();
    const { span, firstHandover, lastHandover, lastAnswer, accepted, rejected } = trace;
    if (firstHandover !== undefined) {
      span.child('hand over', firstHandover, lastHandover, { 'distributary.streams': trace.handovers });
      const answers = { 'distributary.accepted': accepted, 'distributary.rejected': rejected };
      if (lastAnswer > 0) span.child('answer', firstHandover, lastAnswer, answers);
    }
    span.end(why === 'answered' ? lastAnswer : this.#clock.monotonic(), {
      'distributary.end': why,
      'distributary.classes': trace.classes,
      'distributary.subscribers': trace.subscribers,
      'distributary.composed': trace.composed,
      'distributary.handed_over': trace.handovers,
      'distributary.accepted': accepted,
      'distributary.rejected': rejected,
    });
  }
}
