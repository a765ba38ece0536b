import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { slower } from '../support/cpu.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { childrenOf, cpuSeconds } from './support/process-figures.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { rolloutOf } from './support/rollout-state.ts';

const streams = 6000;
const clusters = 10_000;
/** Looked for by name: 60 million times it took 4.2 s of CPU at once, by subscription 0.2 s. */
const mostBlocked = 1500;
const contents = (version: string): Record<string, string> =>
  Object.fromEntries(Array.from({ length: clusters }, (_, index) => [`c${index}`, version]));

for (const workers of [0, 1])
  describe(`the survey of canaries, ${workers} workers`, () => {
    it('6,000 streams of two names each, and a change of 10,000 clusters: it does not stand still', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', contents('1'));
      await using relay = await RelayProcess.startProbed({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: { canary: { percent: 0.01 }, mode: 'MANUAL' },
        workers,
      });
      const cpu = (): number =>
        [relay.pid, ...childrenOf(relay.pid)].reduce((sum, pid) => sum + cpuSeconds(pid), 0);
      using pool = new ClientPool(relay.xds, 8);
      const all = pool.open('delta', 'all');
      all.subscribe('cds');
      await eventually(() => expect(all.holds.get('cds')?.size).to.equal(clusters));
      const clients = Array.from({ length: streams }, (_, index) => {
        const client = pool.open('delta', `n${index}`);
        client.subscribe('cds', [`c${(2 * index) % clusters}`, `c${(2 * index + 1) % clusters}`]);
        return client;
      });
      for (const client of clients) await eventually(() => expect(client.holds.get('cds')?.size).to.equal(2));
      await relay.blocked();
      const before = cpu();
      plane.set('cds', contents('2'));
      const { canaries } = await eventually(
        async () => {
          const now = await rolloutOf(relay);
          expect(now.canaries.accepted, JSON.stringify(now.canaries)).to.be.greaterThan(100);
          expect(now.canaries.accepted).to.equal(now.canaries.total);
          return now;
        },
        { timeout: 60_000, pause: 500 },
      );
      const blocked = await relay.blocked();
      const change = cpu() - before;
      await sleep(3000);
      const idle = cpu() - before - change;
      const figures = JSON.stringify({ canaries, blocked, change, idle });
      // The machine may have become slower since the process began, by whose speed the figures are.
      const factor = slower();
      expect(blocked.cpu / factor, figures).to.be.below(mostBlocked);
      expect(change / factor, figures).to.be.below(workers === 0 ? 4 : 20);
      expect(idle / factor, figures).to.be.below(1.5);
    });
  });
