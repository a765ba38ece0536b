import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { frameOf } from '../../../src/wire/grpc-frames.ts';
import { eventually } from '../../e2e/support/eventually.ts';
import { manyResources, ResourceFiles } from '../../e2e/support/files.ts';
import { residentBytes } from '../../e2e/support/process-figures.ts';
import { RelayProcess } from '../../e2e/support/relay.ts';
import { rawCall } from './calls.ts';
import type { Step } from './search-requests.ts';

/** What a sequence cost the relay. */
export interface Spent {
  /** CPU of its loop's thread, in milliseconds. */
  readonly cpu: number;
  /** The longest time without a turn of the loop, in milliseconds of CPU. */
  readonly stall: number;
  /** By how much the process is larger while the connections are open still, in bytes. */
  readonly held: number;
  /** That were sent. */
  readonly bytes: number;
}

/** A sequence is over when the relay has been calm for so long, or has had so much time. Milliseconds. */
const calmMs = 30;
const patienceMs = 2000;
/** Less than that in `calmMs` is calm, in milliseconds of CPU. */
const calmCpu = 3;
/** Past that a relay is replaced, so that what it holds stays small beside what one sequence adds. */
const largest = 700 << 20;
/** A busy machine may be too slow to start one. So many tries, and so long between them. */
const launches = 10;
const pauseMs = 30_000;
/** The same after so many sequences: of what a relay writes, answers to the probe too, only the last lines are kept. */
const mostSequences = 150;

/** A relay for the search alone. It is replaced if it ends or has grown. */
export class SearchStage implements AsyncDisposable {
  /** Why relays ended by themselves, with what they were sent. */
  readonly ends: string[] = [];
  restarts = 0;
  readonly #files: ResourceFiles;
  #relay: RelayProcess;
  /** Since it was started. */
  #sequences = 0;

  private constructor(files: ResourceFiles, relay: RelayProcess) {
    this.#files = files;
    this.#relay = relay;
  }

  static async start(): Promise<SearchStage> {
    const files = new ResourceFiles();
    for (const type of ['cds', 'eds', 'lds', 'rds', 'sds']) files.write(type, manyResources(500));
    return new SearchStage(files, await launch(files));
  }

  async cost(steps: readonly Step[]): Promise<Spent> {
    const relay = this.#relay;
    try {
      return await this.#measured(relay, steps);
    } catch (error) {
      const alive = new Promise<undefined>((resolve) => setTimeout(resolve, 200, undefined));
      const ended = await Promise.race([relay.exited, alive]);
      const isSilent = error instanceof Error && error.message.includes('SIGUSR2');
      if (ended === undefined && !isSilent) throw error;
      const sent = steps.map((step) => ({ ...step, bytes: step.bytes.toString('base64') }));
      this.ends.push(
        `THE RELAY ENDED (${ended ?? 'silent'}) by ${JSON.stringify(sent)}: ${relay.output.slice(-500)}`,
      );
      await this.#replace();
      return { cpu: 0, stall: 0, held: 0, bytes: 0 };
    }
  }

  async #measured(relay: RelayProcess, steps: readonly Step[]): Promise<Spent> {
    const { pid } = relay;
    await relay.blocked();
    const before = { cpu: cpuOf(pid), resident: residentBytes(pid), idle: performance.now() };
    await using open = new AsyncDisposableStack();
    let bytes = 0;
    for (const step of steps) bytes += send(relay, step, open);
    await calm(pid);
    const cpu = cpuOf(pid) - before.cpu;
    const held = Math.max(0, residentBytes(pid) - before.resident);
    const { cpu: stall } = await relay.blocked();
    if (residentBytes(pid) > largest || ++this.#sequences > mostSequences) await this.#replace();
    // Less than a megabyte is the heap's own breathing.
    return { cpu, stall, held: held < 1 << 20 ? 0 : held, bytes };
  }

  async #replace(): Promise<void> {
    this.restarts++;
    this.#sequences = 0;
    await this.#relay.kill();
    this.#relay = await launch(this.#files);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay.kill();
    this.#files[Symbol.dispose]();
  }
}

async function launch(files: ResourceFiles): Promise<RelayProcess> {
  for (let left = launches - 1; ; left--) {
    try {
      return await launchOnce(files);
    } catch (error) {
      if (left === 0) throw error;
      console.error(`a relay did not start, ${left} tries are left: ${String(error)}`);
      await sleep(pauseMs);
    }
  }
}

async function launchOnce(files: ResourceFiles): Promise<RelayProcess> {
  const parameters = [{ key: 'env', from: 'node.metadata.env' }];
  const relay = await RelayProcess.startProbed({
    upstreams: [files.upstream],
    parameters,
    rest: {},
    metrics: {},
    admin: { read_only: true },
  });
  try {
    await eventually(async () => {
      if ((await relay.get('/ready')).status !== 200) throw new Error('the relay is not ready');
    });
    return relay;
  } catch (error) {
    await relay.kill();
    throw error;
  }
}

/** Sends it and waits for nothing: so many bytes. */
function send(relay: RelayProcess, step: Step, open: AsyncDisposableStack): number {
  const { kind, door, path, bytes, times } = step;
  if (kind === 'call') {
    const session = connectHttp2(`http://${relay.xds}`);
    session.on('error', ignore);
    open.defer(() => session.destroy());
    const messages = Buffer.concat(Array.from({ length: times }, () => frameOf(bytes)));
    rawCall(session, path).stream.write(messages);
    return messages.length + path.length;
  }
  const socket = socketTo(relay[door]);
  open.defer(() => void socket.destroy());
  const one = kind === 'frames' ? bytes : httpOf(step);
  const all = kind === 'frames' ? one : Buffer.concat(Array.from({ length: times }, () => one));
  socket.write(all);
  return all.length;
}

function httpOf({ kind, path, bytes }: Step): Buffer {
  const line = kind === 'get' ? `GET ${path} HTTP/1.1` : `POST ${path} HTTP/1.1`;
  const body = kind === 'get' ? '' : `content-type: application/json\r\ncontent-length: ${bytes.length}\r\n`;
  return Buffer.concat([
    Buffer.from(`${line}\r\nhost: 127.0.0.1\r\n${body}\r\n`),
    kind === 'get' ? Buffer.alloc(0) : bytes,
  ]);
}

function socketTo(address: string): Socket {
  const [host = '', port = ''] = address.split(':');
  const socket = connect({ host, port: Number(port), noDelay: true });
  socket.on('error', ignore);
  socket.resume();
  return socket;
}

/** Until the relay has nothing to do any more. */
async function calm(pid: number): Promise<void> {
  const deadline = performance.now() + patienceMs;
  let last = cpuOf(pid);
  while (performance.now() < deadline) {
    await sleep(calmMs);
    const now = cpuOf(pid);
    if (now - last < calmCpu) return;
    last = now;
  }
}

/** Of the main thread, in milliseconds (Linux). */
function cpuOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
}

function ignore(): void {}
