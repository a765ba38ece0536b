import { Backoff } from '../../model/backoff.ts';
import type { Timer } from '../../model/clock.ts';
import { LOAD_PATH, type LoadStream, type LoadStreamHandler } from '../../model/load.ts';
import { bytes, sizeOf, write } from '../../protobuf/field-writer.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { ChannelStream } from './channel.ts';
import type { AdsConnection, ConnectionUser } from './connection.ts';

/** A control plane without the service is asked again after this, in milliseconds, or by the next connection. */
const withoutServiceMs = 300_000;

/**
 * The stream of one session's load reports on the connection of its upstream. What becomes of it says nothing of the
 * connection: a control plane that knows no LRS is a good one.
 */
export class UpstreamLoadStream implements LoadStream, ConnectionUser {
  readonly awaitsResponse = false;
  readonly #connection: AdsConnection;
  readonly #node: () => Uint8Array;
  readonly #handler: LoadStreamHandler;
  readonly #finished: () => void;
  readonly #backoff: Backoff;
  #stream: ChannelStream | undefined;
  #openedAt = 0;
  #timer: Timer | undefined;
  #isFinished = false;

  /** `node`: asked for each stream, encoded. */
  constructor(
    connection: AdsConnection,
    node: () => Uint8Array,
    handler: LoadStreamHandler,
    finished: () => void,
  ) {
    const { backoff, random } = connection.options;
    this.#connection = connection;
    this.#node = node;
    this.#handler = handler;
    this.#finished = finished;
    this.#backoff = new Backoff(backoff.initialMs, backoff.maxMs, random);
  }

  get node(): Uint8Array {
    return this.#node();
  }

  up(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const { up } = this.#connection;
    if (this.#isFinished || this.#stream !== undefined || up === undefined) return;
    this.#openedAt = this.#connection.options.clock.now();
    const stream = up.channel.open(LOAD_PATH, this.#connection.via(), {
      message: (response) => {
        if (this.#stream !== stream) return false;
        this.#connection.conditions.forget('load');
        if (!this.#isFinished) this.#handler.asked(response);
        return false;
      },
      proceed: () => false,
      closed: (reason, code) => {
        // One to another endpoint may end after this one was opened.
        if (this.#stream === stream) this.#closed(reason, code);
      },
    });
    this.#stream = stream;
    const first = [bytes(1, this.#node())];
    const request = Buffer.allocUnsafe(sizeOf(first));
    write(request, 0, first);
    stream.write(request);
  }

  down(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#lost();
  }

  report(report: Uint8Array, taken: () => void): void {
    this.#stream?.write(report, taken);
  }

  async finish(): Promise<void> {
    this.#isFinished = true;
    this.#timer?.cancel();
    this.#finished();
    await this.#stream?.finish();
  }

  #closed(reason: string, code: Code): void {
    const { clock, backoff } = this.#connection.options;
    const isMissing = code === Code.UNIMPLEMENTED;
    if (clock.now() - this.#openedAt >= backoff.maxMs) this.#backoff.reset();
    const wait = isMissing ? withoutServiceMs : this.#backoff.next();
    this.#timer = clock.after(wait, () => this.up());
    const fields = { reason };
    if (isMissing)
      this.#connection.conditions.set(
        'load',
        'missing',
        'info',
        'the control plane takes no load reports',
        fields,
      );
    else
      this.#connection.conditions.add(
        'load',
        reason,
        'warn',
        'a stream of load reports ended, and another one is opened',
        fields,
      );
    this.#lost();
  }

  #lost(): void {
    const stream = this.#stream;
    if (stream === undefined) return;
    this.#stream = undefined;
    // After a GOAWAY it would go on, and say what is said again on the next one.
    stream.end();
    if (!this.#isFinished) this.#handler.down();
  }
}
