import { Backoff, type Timer } from '../../model/clock.ts';
import { LOAD_PATH, type LoadStream, type LoadStreamHandler } from '../../model/load.ts';
import { bytes, encode } from '../../protobuf/field-writer.ts';
import { featuresOfOrigin } from '../../wire/between-relays.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { AdsConnection, ConnectionUser } from './connection.ts';
import type { ChannelStream } from './grpc-channel.ts';

/** A control plane without the service is asked again after this, in milliseconds, or by the next connection. */
const withoutServiceMs = 300_000;

/**
 * The stream of one session's load reports (protocol §5c) on the connection of its upstream. What becomes of it says nothing
 * of the connection: a control plane that knows no LRS is a good one.
 */
export class UpstreamLoadStream implements LoadStream, ConnectionUser {
  readonly awaits = 'nothing';
  readonly #connection: AdsConnection;
  readonly #node: () => Uint8Array;
  readonly #handler: LoadStreamHandler;
  readonly #all: Set<UpstreamLoadStream>;
  readonly #backoff: Backoff;
  #stream: ChannelStream | undefined;
  #openedAt = 0;
  #timer: Timer | undefined;
  /** On this stream. */
  #said: Uint8Array = Buffer.alloc(0);
  #isFinished = false;

  /** `node`: asked for each report, encoded. `all`: where it is until it is finished. */
  constructor(
    connection: AdsConnection,
    node: () => Uint8Array,
    handler: LoadStreamHandler,
    all: Set<UpstreamLoadStream>,
  ) {
    const { backoff, random } = connection.options;
    this.#connection = connection;
    this.#node = node;
    this.#handler = handler;
    this.#all = all.add(this);
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
    this.#openedAt = this.#connection.options.clock.monotonic();
    const stream = up.channel.open(LOAD_PATH, this.#connection.options.via(), {
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
    this.#said = this.#nodeNow();
    stream.write(encode([bytes(1, this.#said)]));
  }

  down(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#lost();
  }

  report(report: Uint8Array, taken: () => void): void {
    const node = this.#nodeNow();
    const isSaid = Buffer.compare(node, this.#said) === 0;
    this.#said = node;
    this.#stream?.write(isSaid ? report : Buffer.concat([encode([bytes(1, node)]), report]), taken);
  }

  #nodeNow(): Uint8Array {
    const features = featuresOfOrigin(this.#handler.origin()).map((one) => bytes(10, Buffer.from(one)));
    return Buffer.concat([this.#node(), encode(features)]);
  }

  async finish(): Promise<void> {
    this.#isFinished = true;
    this.#timer?.cancel();
    this.#all.delete(this);
    await this.#stream?.finish();
  }

  #closed(reason: string, code: Code | undefined): void {
    const { clock, backoff } = this.#connection.options;
    const isMissing = code === Code.UNIMPLEMENTED;
    if (clock.monotonic() - this.#openedAt >= backoff.maxMs) this.#backoff.reset();
    const wait = isMissing ? withoutServiceMs : this.#backoff.next();
    this.#timer = clock.after(wait, () => this.up());
    const { conditions } = this.#connection;
    const ended = 'a stream of load reports ended, and another one is opened';
    if (!isMissing) conditions.add('load', reason, 'warn', ended, { reason });
    else conditions.set('load', 'missing', 'info', 'the control plane takes no load reports', { reason });
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
