import { readFileSync } from 'node:fs';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { setTimeout as sleep } from 'node:timers/promises';
import { create, toBinary } from '@bufbuild/protobuf';
import { DeltaDiscoveryRequestSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../../src/wire/grpc-frames.ts';
import { type as typeOf } from '../../support/in-memory-relay.ts';
import { rawCall } from './calls.ts';
import { addressOf, type Target } from './target.ts';

const DELTA = '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources';
const CHECK = '/grpc.health.v1.Health/Check';
const empty = frameOf(Buffer.alloc(0));
/** Between two questions, in milliseconds. */
const pause = 5;

/** What one question took, in milliseconds. */
export interface Wait {
  /** Of the relay's loop: CPU of its main thread, which no other program lengthens. */
  readonly cpu: number;
  /** By the clock. */
  readonly wall: number;
}

/** A well-behaved client: an open stream that subscribes once more to what it has, and health checks. */
export class Questions implements Disposable {
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #pid: number;
  readonly #request: Buffer;

  constructor(target: Target, pid: number, cluster: string) {
    const { tls } = target;
    const keys =
      tls === undefined
        ? {}
        : {
            ca: tls.ca,
            servername: tls.serverName,
            cert: tls.tenant?.certificate,
            key: tls.tenant?.privateKey,
          };
    this.#session = connect(`${tls === undefined ? 'http' : 'https'}://${addressOf(target)}`, keys);
    this.#session.on('error', () => undefined);
    this.#stream = rawCall(this.#session, DELTA).stream;
    this.#pid = pid;
    this.#request = frameOf(
      toBinary(
        DeltaDiscoveryRequestSchema,
        create(DeltaDiscoveryRequestSchema, {
          node: { id: 'well-behaved', cluster: 'tenants' },
          typeUrl: typeOf('cds'),
          resourceNamesSubscribe: [cluster],
        }),
      ),
    );
  }

  /** So many questions, one after the other. */
  async ask(count: number): Promise<readonly Wait[]> {
    const waits: Wait[] = [];
    for (let at = 0; at < count; at++) {
      await sleep(pause);
      waits.push(await this.#measured(() => (at % 2 === 0 ? this.#check() : this.#subscribe())));
    }
    return waits;
  }

  async #measured(run: () => Promise<void>): Promise<Wait> {
    const [relay, own, start] = [used(this.#pid).ran, used(process.pid).waited, performance.now()];
    await run();
    const wall = performance.now() - start;
    const ran = used(this.#pid).ran - relay;
    // While the answer is there and this process waits for a processor, the relay goes on with others.
    const late = used(process.pid).waited - own;
    return { cpu: Math.max(0, ran - late), wall };
  }

  async #check(): Promise<void> {
    const { stream, ended } = rawCall(this.#session, CHECK);
    stream.end(empty);
    const status = await ended;
    if (status !== '0') throw new Error(`Health/Check: ${status}`);
  }

  #subscribe(): Promise<void> {
    const stream = this.#stream;
    return new Promise((resolve, reject) => {
      const ended = (): void => reject(new Error('the stream of the well-behaved client ended'));
      if (stream.closed) ended();
      stream.once('close', ended);
      stream.once('data', () => {
        stream.off('close', ended);
        resolve();
      });
      stream.write(this.#request);
    });
  }

  [Symbol.dispose](): void {
    this.#session.destroy();
  }
}

/** Of the main thread of a process, in milliseconds, from the kernel (Linux). */
function used(pid: number): { readonly ran: number; readonly waited: number } {
  const [ran = 0, waited = 0] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8')
    .split(' ')
    .map(Number);
  return { ran: ran / 1e6, waited: waited / 1e6 };
}

/** Below this are 99 of 100. */
export const p99 = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * 0.99) - 1] ?? Number.NaN;
