import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { type AdsStream, ControlPlane } from '../upstream/ads/control-plane.ts';
import { typeOf } from '../upstream/ads/responses.ts';
import { eventually } from './support/eventually.ts';
import { temporaryDirectory } from './support/paths.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const streams = 6;
const namesPerStream = 2000;
const MB = 1024 * 1024;
const patience = { timeout: 60_000 };

/** The names that a control plane is asked for now. */
function asked({ openStreams }: ControlPlane): number {
  return openStreams.reduce((sum, stream) => sum + namesOn(stream).size, 0);
}

function namesOn({ requests }: AdsStream): ReadonlySet<string> {
  const last = requests.at(-1);
  if (last !== undefined && 'resourceNames' in last) return new Set(last.resourceNames);
  const names = new Set<string>();
  for (const request of requests) {
    if ('resourceNamesSubscribe' in request) {
      for (const name of request.resourceNamesSubscribe) names.add(name);
      for (const name of request.resourceNamesUnsubscribe) names.delete(name);
    }
  }
  return names;
}

const onDisk = (directory: string, text: string): boolean =>
  readdirSync(directory).some((file) => readFileSync(join(directory, file)).includes(text));

describe('clients that ask for invented names and leave', function () {
  this.timeout(240_000);

  // The first sees what clients of this process leave, the second what they leave in the primary of workers.
  for (const [protocol, workers] of [
    ['SOTW', 0],
    ['DELTA', 2],
  ] as const) {
    it(`leave nothing behind: ${protocol}, workers: ${workers}`, async () => {
      await using plane = await planeThatKnows('real');
      using directory = temporaryDirectory();
      await using relay = await RelayProcess.startMeasurable({
        drain_timeout: '100ms',
        workers,
        upstreams: [upstream(plane.address, protocol, { resource_timeout: '500ms' })],
        cache: { idle_ttl: '600s', persistence: { path: directory.path } },
      });
      await using bystander = new XdsClient(relay.xds, 'delta');
      bystander.subscribe('eds', ['real']);
      await bystander.gets('eds');
      const comeAndGo = async (round: string): Promise<void> => {
        const cached = await relay.metric('cache_bytes');
        const attackers = Array.from({ length: streams }, (_, stream) => {
          const attacker = new XdsClient(relay.xds, stream % 2 === 0 ? 'sotw' : 'delta');
          const name = (_n: unknown, at: number): string => `invented-${round}-${stream}-${at}`;
          attacker.subscribe('eds', Array.from({ length: namesPerStream }, name));
          return attacker;
        });
        const all = streams * namesPerStream;
        await eventually(() => expect(asked(plane.plane)).to.equal(all + 1), patience);
        await eventually(async () =>
          expect(await relay.metric('cache_bytes')).to.be.above(cached + all * 100),
        );
        for (const attacker of attackers) await attacker[Symbol.asyncDispose]();
        await eventually(async () => expect(await relay.metric('cache_bytes')).to.equal(cached), patience);
        await eventually(() => expect(asked(plane.plane)).to.equal(1));
      };
      // What runs for the first time takes memory, too: code, and buffers that are used again.
      await comeAndGo('first');
      const before = await relay.memory();
      await comeAndGo('second');
      // Some of it goes with timers and buffers of the second after.
      await eventually(async () => {
        expect((await relay.memory()).used - before.used).to.be.below(5 * MB);
      }, patience);
      expect(onDisk(directory.path, 'invented')).to.equal(false);
      expect(bystander.status).to.equal(undefined);
    });
  }
});

interface Plane extends AsyncDisposable {
  readonly plane: ControlPlane;
  readonly address: string;
}

/** Says nothing of any other name, as most control planes do. */
async function planeThatKnows(name: string): Promise<Plane> {
  const plane = await new ControlPlane().listen();
  const told = new Set<AdsStream>();
  plane.answer = (stream) => {
    if (told.has(stream) || !namesOn(stream).has(name)) return;
    told.add(stream);
    stream.send(typeOf('eds'), '1', `${name}:it@1`);
  };
  return {
    plane,
    address: `127.0.0.1:${plane.port}`,
    [Symbol.asyncDispose]: async () => plane.kill(),
  };
}
