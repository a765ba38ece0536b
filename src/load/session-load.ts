import type { Clock, Timer } from '../model/clock.ts';
import type { LoadStream, LoadTarget, LoadUpstream } from '../model/load.ts';
import { type Instruction, readInstruction } from './instruction.ts';
import { LoadSums, type TakenSums } from './sums.ts';

/** Who is told what a control plane asks for. */
export interface Subscriber {
  /** The instruction has changed. */
  instructed(): void;
}

interface SessionLoadOptions {
  readonly target: LoadTarget;
  readonly clock: Clock;
  /** Asked when upstreams may have changed. Undefined: there is none of this name. */
  readonly upstream: (name: string) => LoadUpstream | undefined;
  /** A report of the sums was handed over. */
  readonly sent: () => void;
  readonly malformed: (reason: string) => void;
  readonly over: () => void;
}

/**
 * The load of one session: who reports, the sums of what they said, and the stream that takes them. It lives from its
 * first client until the last one has left and its sums are sent.
 */
export class SessionLoad {
  readonly sums: LoadSums;
  readonly subscribers = new Set<Subscriber>();
  readonly #options: SessionLoadOptions;
  #upstream: LoadUpstream | undefined;
  #stream: LoadStream | undefined;
  #instruction: Instruction | undefined;
  /** The control plane has said on this stream that it takes reports. */
  #isAsked = false;
  /** Reported on this stream, and not handed over yet. */
  #taken: (TakenSums & { readonly stream: LoadStream | undefined }) | undefined;
  #timer: Timer | undefined;
  #isOver = false;

  constructor(options: SessionLoadOptions) {
    this.#options = options;
    this.sums = new LoadSums(options.clock.monotonic());
    this.reload();
  }

  get target(): LoadTarget {
    return this.#options.target;
  }

  /** What the control plane asks for; undefined: nothing so far. */
  get instruction(): Instruction | undefined {
    return this.#instruction;
  }

  /** A stream to the control plane is open, and it takes reports. */
  get isAsked(): boolean {
    return this.#isAsked;
  }

  join(subscriber: Subscriber): void {
    this.subscribers.add(subscriber);
  }

  leave(subscriber: Subscriber): void {
    this.subscribers.delete(subscriber);
    this.#endIfDone();
  }

  /** Nobody reports any more, and nothing is left to be sent; or the upstream is gone. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Upstreams may have changed: another one of the same name gets what this one did not. */
  reload(): void {
    const { target, upstream } = this.#options;
    const now = upstream(target.upstream);
    if (now !== undefined && now === this.#upstream) return;
    const before = this.#stream;
    this.#stopAsking();
    // What is on its way may still be handed over.
    void before?.finish().then(() => this.#giveBack(before));
    this.#upstream = now;
    const stream: LoadStream | undefined = now?.openLoadStream(target, {
      asked: (response) => this.#asked(response),
      down: () => {
        this.#stopAsking();
        this.#giveBack(stream);
      },
    });
    this.#stream = stream;
    if (now === undefined) this.#end();
  }

  /** Sends what is left; resolves when that is handed over, or cannot be. */
  async finish(): Promise<void> {
    const stream = this.#stream;
    if (this.#isAsked && !this.sums.isEmpty)
      reportAll(stream, this.sums.take(this.#options.clock.monotonic()), this.#options.sent);
    this.#end();
    await stream?.finish();
  }

  #asked(response: Buffer): void {
    const read = readInstruction(response);
    if (!read.ok) {
      this.#options.malformed(read.error);
      return;
    }
    const before = this.#instruction;
    this.#instruction = read.value;
    if (before === undefined) this.sums.begin(this.#options.clock.monotonic());
    if (!this.#isAsked || before?.intervalMs !== read.value.intervalMs) this.#schedule();
    this.#isAsked = true;
    if (before?.frame.equals(read.value.frame) === true) return;
    for (const subscriber of [...this.subscribers]) subscriber.instructed();
  }

  #schedule(): void {
    this.#timer?.cancel();
    this.#timer = this.#options.clock.after(this.#instruction?.intervalMs ?? 0, () => {
      this.#schedule();
      // What the control plane does not read is not queued: it is in the next sums.
      if (this.#taken === undefined) this.#report();
    });
  }

  #report(): void {
    const stream = this.#stream;
    const taken = { ...this.sums.take(this.#options.clock.monotonic()), stream };
    this.#taken = taken;
    reportAll(stream, taken, () => {
      if (this.#taken !== taken) return;
      this.#taken = undefined;
      taken.confirm();
      this.#options.sent();
      this.#endIfDone();
    });
  }

  #stopAsking(): void {
    this.#timer?.cancel();
    this.#isAsked = false;
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
    if (this.subscribers.size > 0 || this.#isOver) return;
    const isDone = this.#taken === undefined && this.sums.isEmpty;
    if (!isDone && this.#instruction !== undefined) return;
    void this.#stream?.finish();
    this.#end();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timer?.cancel();
    this.sums.clear();
    this.#options.over();
  }
}

/** `done`: the last one was handed over, and so were those before it. */
function reportAll(stream: LoadStream | undefined, { messages }: TakenSums, done: () => void): void {
  for (const [index, bytes] of messages.entries())
    stream?.report(bytes, index === messages.length - 1 ? done : () => {});
}
