import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import { root } from '../e2e/support/paths.ts';
import { Process } from '../e2e/support/process.ts';
import { bundleRelay } from '../run/bundle.ts';

const place = join(root, '.cache/start');
const rounds = 5;
/** After the start, in milliseconds. V8 gives more back half a minute later. */
const restMs = 2000;

interface Start {
  /** Milliseconds of all threads, until it listens. */
  readonly cpu: number;
  /** Resident, in MB. */
  readonly memory: number;
}

function cpuOf(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  );
  return nanoseconds.reduce((sum, one) => sum + one, 0) / 1e6;
}

async function start(...args: readonly string[]): Promise<Start> {
  const started = new Process({ command: process.execPath, args });
  try {
    await started.line(/^listening admin /);
    const cpu = cpuOf(started.pid);
    await setTimeout(restMs);
    const status = readFileSync(`/proc/${started.pid}/status`, 'utf8');
    return { cpu, memory: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024 };
  } finally {
    await started.stop('SIGKILL');
  }
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;

/** What helpers of V8 share of a short work goes up and down with the machine. */
const oneHelper = '--v8-pool-size=1';

/** The least of CPU: what else the machine does only adds to it. */
const ofAll = (starts: readonly Start[]): Start => ({
  cpu: Math.min(...starts.map(({ cpu }) => cpu)),
  memory: median(starts.map(({ memory }) => memory)),
});

describe('the start of a relay over files, without clients', function () {
  this.timeout(300_000);
  let relayMain: string;

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    rmSync(place, { recursive: true, force: true });
    mkdirSync(join(place, 'resources'), { recursive: true });
    relayMain = process.env['TESTS_RELAY'] ?? (await bundleRelay());
    const address = '127.0.0.1:0';
    const upstreams = [{ name: 'files', filesystem: { path: join(place, 'resources') } }];
    const config = { node: { id: 'relay' }, xds: { address }, admin: { address }, upstreams };
    writeFileSync(join(place, 'relay.json'), JSON.stringify(config));
  });

  // It takes 7 to 10 times the CPU; from modules it took 23 times, and 3.2 times the memory. `scripts.more.ts` knows whether
  // V8's code from the build is taken.
  it('takes at most 14 times the CPU of a Node that does nothing, and 2.6 times its memory', async () => {
    const nothing = "console.log('listening admin nowhere'); setInterval(() => {}, 1e6);";
    const relays: Start[] = [];
    const bare: Start[] = [];
    for (let round = 0; round < rounds; round++) {
      bare.push(await start(oneHelper, '-e', nothing));
      relays.push(await start(oneHelper, relayMain, 'run', '--config', join(place, 'relay.json')));
    }
    const [relay, node] = [ofAll(relays), ofAll(bare)];
    const text = ({ cpu, memory }: Start): string => `${cpu.toFixed()} ms of CPU, ${memory.toFixed()} MB`;
    console.log(`  ${text(relay)}; a bare Node: ${text(node)}`);
    expect(relay.cpu).to.be.below(14 * node.cpu);
    expect(relay.memory).to.be.below(2.6 * node.memory);
  });
});
