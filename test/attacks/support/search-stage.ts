import { existsSync, readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { frameOf } from '../../../src/wire/grpc-frames.ts';
import { eventually } from '../../e2e/support/eventually.ts';
import { manyResources, ResourceFiles } from '../../e2e/support/files.ts';
import { get } from '../../e2e/support/http.ts';
import { killRunning } from '../../e2e/support/process.ts';
import { residentBytes } from '../../e2e/support/process-figures.ts';
import { RelayProcess } from '../../e2e/support/relay.ts';
import { rawCall } from './calls.ts';
import type { Step } from './search-requests.ts';
import { TenantFiles, tenantsTls } from './tenants.ts';

/** Whether the listeners have TLS, all but the one for metrics. */
export type Kind = 'plain' | 'TLS';

/** What a sequence cost the relay. */
export interface Spent {
  /** CPU of its loop's thread, in milliseconds. */
  readonly cpu: number;
  /** The longest time without a turn of the loop, in milliseconds of CPU. */
  readonly stall: number;
  /** By how much the process is larger while the connections are open still, in bytes. */
  readonly held: number;
  /** That were sent, handshakes included. */
  readonly bytes: number;
}

export interface Outcome {
  /** As far as it is known of a relay that ended. */
  readonly spent: Spent;
  /** What must not happen to a relay, with the end of its log. */
  readonly fault: { readonly what: string; readonly log: string } | undefined;
}

/** A sequence is over when the relay has been calm for so long, or has had so much time. Milliseconds. */
const calmMs = 30;
const patienceMs = 2000;
/** Less than that in `calmMs` is calm, in milliseconds of CPU. */
const calmCpu = 3;
/** A turn of so much CPU is a standstill, in milliseconds. */
const standstill = 1000;
/** Past that a relay is replaced, so that what it holds stays small beside what one sequence adds. */
const largest = 700 << 20;
/** The same after so many sequences: of what a relay writes, answers to the probe too, only the last lines are kept. */
const mostSequences = 150;
/** Between two tries to start a relay, and at most. Milliseconds. */
const firstPause = 1000;
const longestPause = 30_000;
/** A relay that is gone is known to be after so long, on a busy machine too. Milliseconds. */
const goneMs = 5000;
const logLines = 40;

/** A relay for the search alone, one at a time. It is replaced if it ends, has grown, or is of the other kind. */
export class SearchStage implements AsyncDisposable {
  starts = 0;
  failedStarts = 0;
  lastFailure = '';
  readonly #files = new ResourceFiles();
  readonly #pem = new TenantFiles();
  readonly #over: AbortSignal;
  #relay: RelayProcess | undefined;
  #kind: Kind = 'plain';
  /** Since it was started. */
  #sequences = 0;

  /** `over` ends whatever runs. */
  constructor(over: AbortSignal) {
    this.#over = over;
    over.addEventListener('abort', killRunning, { once: true });
    for (const type of ['cds', 'eds', 'lds', 'rds', 'sds']) this.#files.write(type, manyResources(500));
  }

  /** What it cost a relay of this kind; undefined: the search is over. */
  async cost(kind: Kind, steps: readonly Step[]): Promise<Outcome | undefined> {
    const relay = await this.#relayOf(kind);
    if (relay === undefined) return undefined;
    const spent = { cpu: 0, stall: 0, held: 0, bytes: 0 };
    const what = await this.#measure(relay, steps, spent);
    if (this.#over.aborted) return undefined;
    return { spent, fault: what === undefined ? undefined : { what, log: logOf(relay) } };
  }

  /** Fills in `spent`. What must not happen is returned. */
  async #measure(relay: RelayProcess, steps: readonly Step[], spent: Draft): Promise<string | undefined> {
    try {
      await measure(relay, this.#kind, steps, spent);
    } catch (error) {
      const gone = await Promise.race([relay.exited, sleep(goneMs, undefined, { ref: false })]);
      const isSilent = error instanceof Error && error.message.includes('SIGUSR2');
      if (gone === undefined && !isSilent) throw error;
      await this.#end();
      return gone === undefined ? 'gave no answer for 30 s' : `ended (${gone})`;
    }
    return spent.stall > standstill ? 'stood still' : undefined;
  }

  async #relayOf(kind: Kind): Promise<RelayProcess | undefined> {
    const used = this.#relay;
    const isWorn = (relay: RelayProcess): boolean =>
      this.#sequences >= mostSequences || residentBytes(relay.pid) > largest;
    if (used !== undefined && (kind !== this.#kind || isWorn(used))) await this.#end();
    this.#kind = kind;
    this.#relay ??= await this.#started(kind);
    this.#sequences++;
    return this.#relay;
  }

  /** A busy machine may be too slow for a start, or for many. */
  async #started(kind: Kind): Promise<RelayProcess | undefined> {
    for (let pause = firstPause; !this.#over.aborted; pause = Math.min(2 * pause, longestPause)) {
      try {
        const relay = await launch(this.#files, kind === 'TLS' ? { tls: this.#pem.tls } : {});
        this.starts++;
        this.#sequences = 0;
        return relay;
      } catch (error) {
        if (this.#over.aborted) return undefined;
        this.failedStarts++;
        this.lastFailure = String(error);
        await sleep(pause, undefined, { signal: this.#over }).catch(ignore);
      }
    }
    return undefined;
  }

  /** What comes next is for a new relay. */
  renew(): Promise<void> {
    return this.#end();
  }

  async #end(): Promise<void> {
    const relay = this.#relay;
    this.#relay = undefined;
    await relay?.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    this.#files[Symbol.dispose]();
    this.#pem[Symbol.dispose]();
  }
}

async function launch(files: ResourceFiles, secure: object): Promise<RelayProcess> {
  const relay = await RelayProcess.startProbed({
    upstreams: [files.upstream],
    parameters: [{ key: 'env', from: 'node.metadata.env' }],
    xds: secure,
    rest: secure,
    metrics: {},
    admin: { read_only: true, ...secure },
  });
  try {
    await eventually(async () => {
      // Not the admin listener's: that one may ask for a certificate.
      const { status } = await get(`http://${relay.metrics}/ready`);
      if (status !== 200) throw new Error(`the relay is not ready: ${status}`);
    });
  } catch (error) {
    await relay.kill();
    throw error;
  }
  return relay;
}

/** The end of its log, without the probe's answers. */
const logOf = ({ logged }: RelayProcess): string =>
  logged
    .filter((line) => !line.startsWith('blocked '))
    .slice(-logLines)
    .join('\n');

type Draft = { -readonly [Key in keyof Spent]: Spent[Key] };

/** Fills in `spent` as far as it comes. Rejects if the relay ends or answers no more. */
async function measure(relay: RelayProcess, kind: Kind, steps: readonly Step[], spent: Draft): Promise<void> {
  const { pid } = relay;
  const ended = relay.exited.then((how) => Promise.reject(new Error(`the relay ended (${how})`)));
  const blocked = (): Promise<{ readonly cpu: number }> => Promise.race([relay.blocked(), ended]);
  await blocked();
  const before = { cpu: cpuOf(pid), resident: residentBytes(pid) };
  const look = (): void => {
    spent.cpu = cpuOf(pid) - before.cpu;
  };
  const sockets: Socket[] = [];
  const shaken: Promise<unknown>[] = [];
  await using open = new AsyncDisposableStack();
  const dial: Dial = ({ door, kind: sent }, ALPNProtocols) => {
    const tcp = socketTo(relay[door]);
    sockets.push(tcp);
    open.defer(() => void tcp.destroy());
    if (kind === 'plain' || door === 'metrics' || sent === 'first') return tcp;
    const tls = secured(tcp, ALPNProtocols);
    shaken.push(new Promise((resolve) => void tls.once('secureConnect', resolve).once('close', resolve)));
    return tls;
  };
  try {
    for (const step of steps) send(step, dial);
    // On a busy machine a relay is calm also between two steps of a handshake.
    await Promise.race([Promise.all(shaken), sleep(patienceMs, undefined, { ref: false })]);
    await calm(spent, look);
    // Less than a megabyte is the heap's own breathing.
    const held = residentBytes(pid) - before.resident;
    spent.held = held < 1 << 20 ? 0 : held;
    spent.stall = (await blocked()).cpu;
  } finally {
    spent.bytes = sockets.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0);
    if (isThere(pid)) look();
  }
}

type Dial = (step: Step, ALPNProtocols: string[]) => Socket;

/** Sends it and waits for nothing. */
function send(step: Step, dial: Dial): void {
  const { kind, path, bytes, times } = step;
  if (kind === 'stream' || kind === 'unary') {
    const socket = dial(step, ['h2']);
    const session = connectHttp2('http://127.0.0.1', { createConnection: () => socket });
    session.on('error', ignore);
    const { stream } = rawCall(session, path);
    stream.write(Buffer.concat(Array.from({ length: times }, () => frameOf(bytes))));
    if (kind === 'unary') stream.end();
    return;
  }
  const isRequest = kind === 'post' || kind === 'get';
  const socket = dial(step, isRequest ? ['http/1.1'] : ['h2', 'http/1.1']);
  const one = isRequest ? httpOf(step) : bytes;
  socket.resume().write(isRequest ? Buffer.concat(Array.from({ length: times }, () => one)) : one);
}

function httpOf({ kind, path, type, bytes }: Step): Buffer {
  const line = kind === 'get' ? `GET ${path} HTTP/1.1` : `POST ${path} HTTP/1.1`;
  const body = kind === 'get' ? '' : `content-type: ${type}\r\ncontent-length: ${bytes.length}\r\n`;
  return Buffer.concat([
    Buffer.from(`${line}\r\nhost: 127.0.0.1\r\n${body}\r\n`),
    kind === 'get' ? Buffer.alloc(0) : bytes,
  ]);
}

function socketTo(address: string): Socket {
  const [host = '', port = ''] = address.split(':');
  return connect({ host, port: Number(port), noDelay: true }).on('error', ignore);
}

/** With the certificate of a tenant. */
function secured(socket: Socket, ALPNProtocols: string[]): Socket {
  const { ca, serverName = '', attacker } = tenantsTls;
  const own = attacker === undefined ? {} : { cert: attacker.certificate, key: attacker.privateKey };
  return connectTls({ socket, ca, servername: serverName, ALPNProtocols, ...own }).on('error', ignore);
}

/** Until the relay has nothing to do any more. */
async function calm(spent: Spent, look: () => void): Promise<void> {
  const deadline = performance.now() + patienceMs;
  look();
  while (performance.now() < deadline) {
    const last = spent.cpu;
    await sleep(calmMs);
    look();
    if (spent.cpu - last < calmCpu) return;
  }
}

/** Of the main thread, in milliseconds (Linux). */
function cpuOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
}

function isThere(pid: number): boolean {
  return existsSync(`/proc/${pid}/task`);
}

function ignore(): void {}
