import { expect } from 'chai';
import { measured } from '../../scripts/plan-model.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { FleetPlane, type FleetPrograms, fleetPrograms, runFleet } from '../e2e/support/fleet.ts';
import { cpuSeconds, residentBytes } from '../e2e/support/process-figures.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { checkCurrent } from '../e2e/support/relay-state.ts';
import { need } from '../e2e/support/skip.ts';

const streams = 6000;
const updates = 60;
/** How many relays each tier has, from the control plane down. */
const tiers = [1, 2, 4];
const MB = 1024 * 1024;

describe(`three tiers of relays with ${streams} streams, 36 KB for each update: docs/scale.md`, function () {
  this.timeout(600_000);
  let programs: FleetPrograms;

  before(async function () {
    programs = await need(this, fleetPrograms());
  });

  it('every stream has every update, and the tier above sees only the relays below it', async () => {
    await using plane = await FleetPlane.start(programs);
    await using stack = new AsyncDisposableStack();
    const relays: RelayProcess[][] = [];
    for (const [tier, count] of tiers.entries()) {
      const above = relays.at(-1)?.map(({ xds }) => xds) ?? [plane.address];
      const below: RelayProcess[] = [];
      for (let at = 0; at < count; at++)
        below.push(stack.use(await start(`tier-${tier}-${at}`, above[at % above.length] ?? '')));
      relays.push(below);
    }
    const lowest = relays.at(-1) ?? [];
    const fleet = { streams, stalled: 0, updates, pace: 0, window: 65_535 };
    const report = await runFleet(programs, plane, lowest, fleet);

    // The generator divides the CPU of the first relay by the updates of all of them.
    const micros = report.cpu_us_per_update * lowest.length;
    const formula = measured.updateMicros + measured.microsPerKb * 34;
    const process = (relay: RelayProcess): string =>
      `${cpuSeconds(relay.pid).toFixed(1)} s ${Math.round(residentBytes(relay.pid) / MB)} MB`;
    const figures = relays.map((tier, at) => `tier ${at + 1}: ${tier.map(process).join(', ')}`);
    console.log(
      `an update for one client: ${micros.toFixed(1)} µs of CPU (formula: ${formula.toFixed(1)}); ` +
        `p50 ${report.p50_ms} ms, p99 ${report.p99_ms} ms, last ${report.last_ms} ms\n${figures.join('\n')}`,
    );
    const { first_errors: errors, late, ...checks } = report.checks;
    expect(errors).to.deep.equal([]);
    expect(late, 'what comes within the wait').to.equal(0);
    expect(Object.values(checks)).to.deep.equal(Object.values(checks).map(() => 0));
    expect(report.streams_with_every_update).to.equal(streams);
    for (const relay of lowest) await eventually(() => checkCurrent(relay));
    for (const [at, tier] of relays.slice(0, -1).entries()) {
      const below = relays[at + 1] ?? [];
      for (const relay of tier)
        expect(await relay.metric('downstream_streams'), 'one stream of each relay below').to.equal(
          below.length / tier.length,
        );
    }
  });
});

function start(id: string, above: string): Promise<RelayProcess> {
  return RelayProcess.start({
    node: { id, cluster: 'relays' },
    upstreams: [{ name: 'above', ads: { endpoints: [above], protocol: 'DELTA', variants: 'NATIVE' } }],
    drain_timeout: '200ms',
  });
}
