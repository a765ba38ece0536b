import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { ResourceFiles } from '../e2e/support/files.ts';
import { childrenOf, cpuSeconds } from '../e2e/support/process-figures.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { PREFACE } from './support/frames.ts';
import { closed } from './support/rest-calls.ts';

const counts = [0, 1] as const;
const doors = ['xds', 'rest', 'admin', 'metrics'] as const;
const prefixes = Array.from(PREFACE, (_, at) => PREFACE.subarray(0, at + 1));
/** How long an idle relay is watched, in milliseconds, and what it may use of a processor in that time, in seconds. */
const watched = 2000;
const idle = 0.5;

const cpuOf = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0);

async function say(address: string, bytes: Uint8Array): Promise<Socket> {
  const [host = '', port = ''] = address.split(':');
  const socket = connect({ host, port: Number(port), noDelay: true });
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.resume().write(bytes);
  return socket;
}

describe('part of the preface of HTTP/2, and no more', function () {
  this.timeout(180_000);
  const relays = new Map<number, RelayProcess>();
  let files: ResourceFiles;

  const relayWith = (workers: number): RelayProcess => {
    const relay = relays.get(workers);
    if (relay === undefined) throw new Error(`there is no relay with ${workers} workers`);
    return relay;
  };

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    for (const workers of counts) {
      const config = { upstreams: [files.upstream], workers, rest: {}, metrics: {} };
      relays.set(workers, await RelayProcess.start(config));
    }
  });

  after(async () => {
    for (const relay of relays.values()) await relay[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  for (const workers of counts) {
    for (const door of doors) {
      it(`gives the relay nothing to do: ${door}, with workers: ${workers}`, async () => {
        const relay = relayWith(workers);
        const pids = [relay.pid, ...childrenOf(relay.pid)];
        const sockets = await Promise.all(prefixes.map((bytes) => say(relay[door], bytes)));
        await sleep(200);
        const before = cpuOf(pids);
        await sleep(watched);
        const used = cpuOf(pids) - before;
        for (const socket of sockets) socket.destroy();
        expect(used).to.be.below(idle);
      });
    }
  }

  it('ends, on every listener', async () => {
    const addresses = [...relays.values()].flatMap((relay) => doors.map((door) => relay[door]));
    const all = addresses.flatMap((address) => prefixes.map((bytes) => say(address, bytes)));
    const sockets = await Promise.all(all);
    await Promise.all(sockets.map(closed));
  });
});
