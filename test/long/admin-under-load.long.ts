import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { runProcess } from '../e2e/support/command.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { FleetPlane, type FleetPrograms, fleetPrograms } from '../e2e/support/fleet.ts';
import { Process } from '../e2e/support/process.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { clientsOf } from '../e2e/support/relay-state.ts';
import { need } from '../e2e/support/skip.ts';

/** Of a machine that others use too; docs/performance.md says what was measured. */
const longestAnswerMs = 3000;

/** What a probe, a scraper and an operator ask. */
const paths = ['/healthz', '/ready', '/metrics', '/'];

describe('the admin listener with a large fleet', function () {
  this.timeout(300_000);
  let programs: FleetPrograms;

  before(async function () {
    programs = await need(this, fleetPrograms());
  });

  function fleet(relay: RelayProcess, plane: FleetPlane, options: Readonly<Record<string, string>>): Process {
    const all = {
      addr: relay.xds,
      control: plane.control,
      warm: '0',
      updates: '0',
      window: '65536',
      ...options,
    };
    const args = Object.entries(all).flatMap(([name, value]) => [`-${name}`, value]);
    return new Process({
      command: programs.loadgen,
      args: ['-type', 'cds', '-nres', '100', '-size', '360', ...args],
    });
  }

  for (const workers of [0, 2]) {
    it(`answers soon while 10,000 streams reconnect, three times (workers: ${workers})`, async () => {
      await using plane = await FleetPlane.start(programs);
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        workers,
        drain_timeout: '100ms',
      });
      const storm = fleet(relay, plane, { n: '10000', storms: '3', timeout: '120s' });
      const ended = storm.exited.then((code) => ({ code }));
      const slowest = new Map<string, number>();
      let most = 0;
      const look = async (): Promise<void> => {
        for (const path of paths) {
          const start = performance.now();
          await relay.get(path);
          slowest.set(path, Math.max(slowest.get(path) ?? 0, performance.now() - start));
        }
        // Without a series, before the first stream, it is NaN.
        most = Math.max(most, (await relay.metric('downstream_streams')) || 0);
      };
      let outcome: { readonly code: number | string } | undefined;
      while (outcome === undefined) {
        await look();
        outcome = await Promise.race([ended, sleep(200, undefined)]);
      }
      expect(outcome.code, storm.errors.join('\n')).to.equal(0);
      console.log(`most streams seen: ${most}; slowest answers in ms:`, Object.fromEntries(slowest));
      expect(most).to.be.above(5000);
      for (const [path, milliseconds] of slowest) expect(milliseconds, path).to.be.below(longestAnswerMs);
    });
  }

  it('every command answers about 5,000 streams, and while the control plane is away', async () => {
    const plane = await FleetPlane.start(programs);
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      rollout: { canary: { percent: 1 } },
      drain_timeout: '100ms',
    });
    const streams = fleet(relay, plane, { n: '5000', idle: '240s', timeout: '120s' });
    try {
      await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(5000), {
        timeout: 120_000,
        pause: 1000,
      });
      const [client] = await clientsOf(relay);
      const resources = await runProcess('resources', '--admin', `http://${relay.admin}`);
      const [, name = ''] = /^cds +(\S+)/m.exec(resources.out) ?? [];
      const commands: readonly (readonly string[])[] = [
        ['status'],
        ['clients'],
        ['clients', '--json'],
        ['clients', '--node', '*9', '--limit', '10'],
        ['resources'],
        ['get', '--type', 'cds', '--name', name],
        ['get', '--type', 'cds', '--name', name, '--client', client?.id ?? ''],
        ['explain', '--type', 'cds', '--name', name, '--client', client?.id ?? ''],
        ['history'],
        ['diff', '--client', client?.id ?? '', '--client', client?.id ?? ''],
        ['wait', '--timeout', '20s'],
        ['freeze', '--reason', 'a test'],
        ['unfreeze', '--reason', 'a test'],
        ['release', '--reason', 'a test'],
        ['discard', '--reason', 'a test'],
        ['log', '--level', 'info', '--for', '1s'],
      ];
      const tried = async (when: string): Promise<void> => {
        for (const command of commands) {
          const start = performance.now();
          const { code, out } = await runProcess(...command, '--admin', `http://${relay.admin}`);
          const seconds = ((performance.now() - start) / 1000).toFixed(2);
          console.log(
            `${when}: ${command.slice(0, 2).join(' ')}: exit ${code}, ${seconds} s, ${out.length} characters`,
          );
          expect(out, command.join(' ')).not.to.match(/internal error|at .*\.ts:\d+/);
          expect(Number(seconds), command.join(' ')).to.be.below(10);
        }
      };
      await tried('control plane there');
      await plane[Symbol.asyncDispose]();
      await eventually(async () => expect(await relay.metric('upstream_connected')).to.equal(0));
      await tried('control plane away');
    } finally {
      await streams.stop();
    }
  });
});
