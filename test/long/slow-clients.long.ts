import { setInterval } from 'node:timers';
import { expect } from 'chai';
import {
  FleetPlane,
  type FleetPrograms,
  type FleetReport,
  fleetPrograms,
  runFleet,
} from '../e2e/support/fleet.ts';
import { residentBytes } from '../e2e/support/process-figures.ts';
import { RelayProcess, upstream } from '../e2e/support/relay.ts';
import { need } from '../e2e/support/skip.ts';

const MB = 1024 * 1024;
/** 36 KB ten times a second. */
const fleet = { streams: 1000, pace: 100, window: 65_535 };

interface Run {
  readonly report: FleetReport;
  /** The most that the relay had while it ran, above what it had before, in bytes. */
  readonly growth: number;
  readonly rejected: number;
  readonly coalesced: number;
}

describe('1,000 clients of which 100 do not read, while 36 KB change ten times a second', function () {
  this.timeout(600_000);
  let programs: FleetPrograms;
  let without: Run;

  before(async function () {
    programs = await need(this, fleetPrograms());
    without = await run('none stalled, a minute', 0, 600, '300s');
  });

  async function run(title: string, stalled: number, updates: number, patience: string): Promise<Run> {
    await using plane = await FleetPlane.start(programs);
    await using relay = await RelayProcess.start({
      upstreams: [upstream(plane.address, 'DELTA')],
      limits: { stalled_timeout: patience },
    });
    const start = residentBytes(relay.pid);
    let most = start;
    const sampling = setInterval(() => {
      most = Math.max(most, residentBytes(relay.pid));
    }, 200);
    try {
      const report = await runFleet(programs, plane, [relay], { ...fleet, stalled, updates });
      const growth = most - start;
      const { p50_ms, p99_ms, last_ms } = report;
      const { streams_with_every_update: every, superseded_for_reading: overtaken } = report;
      console.log(
        `${title}: p50 ${p50_ms.toFixed(0)}, p99 ${p99_ms.toFixed(0)}, last ${last_ms.toFixed(0)} ms, ` +
          `${every} streams saw every update, ${overtaken} updates overtaken by the next for the others, ${(growth / MB).toFixed(0)} MB, ` +
          `${report.cpu_us_per_update.toFixed(0)} µs of CPU per update`,
      );
      const rejected = await relay.metric('downstream_rejected_total', 'reason="stalled"');
      const coalesced = await relay.metric('downstream_coalesced_total');
      return { report, growth, rejected, coalesced };
    } finally {
      clearInterval(sampling);
    }
  }

  it('the others get every state, as soon as without them; each stalled one costs one pending state at most', async () => {
    const { report, growth, coalesced } = await run('100 stalled, a minute', 0.1, 600, '300s');
    expect(report.checks).to.deep.include({
      out_of_order: 0,
      incomplete: 0,
      wrong_bytes: 0,
      unfinished: 0,
      broken: 0,
    });
    expect(coalesced).to.be.greaterThan(100 * 500);
    // What had been on its way into the client's windows, the rest of one, and the newest.
    expect(report.most_responses_after_stall).to.be.at.most(4);
    expect(growth - without.growth, 'bytes more than without').to.be.below(50 * MB);
    expect(report.p99_ms).to.be.below(2 * without.report.p99_ms + 20);
  });

  it('past limits.stalled_timeout they are closed with a status, and counted', async () => {
    const { report, rejected } = await run('100 stalled, closed after 5 s', 0.1, 150, '5s');
    expect(rejected).to.equal(100);
    expect(report.checks.broken).to.equal(100);
    expect(report.checks.unfinished).to.equal(100);
    expect(report.checks.first_errors.join('\n')).to.match(/limits\.stalled_timeout|RST_STREAM 00 00 00 0b/);
  });
});
