import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { runPlan } from '../../scripts/plan-command.ts';
import { defaults, measured, type Plan, plan } from '../../scripts/plan-model.ts';

const page = join(import.meta.dirname, '../../docs/scale.md');
/** A block whose info string is a command line of the plan holds what the plan prints. */
const block = /^```plan (.*)\n([^]*?)^```$/gm;

const of = (changes: Partial<typeof defaults>): Plan => plan({ ...defaults, ...changes });

describe('the plan of a fleet', () => {
  it('is in docs/scale.md as it is computed (PLAN=write writes it)', () => {
    const text = readFileSync(page, 'utf8');
    const computed = text.replaceAll(block, (_, flags: string) => {
      const { out, code } = runPlan(flags.split(' '));
      expect(code).to.equal(0);
      return `\`\`\`plan ${flags}\n${out}\`\`\``;
    });
    if (process.env['PLAN'] === 'write') writeFileSync(page, computed);
    expect(computed).to.equal(readFileSync(page, 'utf8'));
    expect([...text.matchAll(block)]).to.have.length(3);
  });

  it('takes the constants that the page names', () => {
    const text = readFileSync(page, 'utf8');
    for (const value of [
      `${measured.updateMicros} µs of CPU`,
      `${measured.microsPerKb} µs`,
      `${measured.joinMicros} µs of CPU`,
      `${measured.streamKb} KB`,
      `${measured.baseMb} MB`,
    ]) {
      expect(text).to.include(`| ${value} |`);
    }
  });

  it('a process is bound by max_streams, by the time to the last client, or by its core', () => {
    expect(of({}).boundBy).to.equal('max_streams');
    expect(of({ secondsToLast: 0.1 })).to.include({ boundBy: 'seconds_to_last', streamsPerProcess: 2493 });
    expect(of({ updatesPerMinute: 6000 }).boundBy).to.equal('busy');
  });

  it('has room for the clients of a region that has failed, and one process to spare', () => {
    const { processesPerRegion, streamsPerProcess, envoysPerRegionAfterFailover } = of({ envoys: 300_000 });
    expect(envoysPerRegionAfterFailover).to.equal(150_000);
    expect((processesPerRegion - 1) * streamsPerProcess).to.be.at.least(150_000);
  });

  it('plans a second tier where the control plane would see too many streams', () => {
    const large = { envoys: 1_000_000, regions: 10, parameterSets: 10 };
    expect(of(large)).to.include({ tiers: 2, upperRelays: 20, planeStreams: 200 });
    expect(of({ ...large, planeStreams: 100 })).to.include({ tiers: 2, upperRelays: 2, planeStreams: 20 });
    expect(of({}).tiers).to.equal(1);
  });

  it('plans no upper tier with as many streams as one tier has', () => {
    const small = { envoys: 100_000, regions: 10, planeStreams: 20 };
    expect(of(small)).to.include({ processesPerRegion: 2, tiers: 2, upperRelays: 2, planeStreams: 6 });
    expect(of({ envoys: 10, regions: 1, planeStreams: 1 })).to.include({ tiers: 1, planeStreams: 6 });
  });

  it('says so if the control plane bears less than the least', () => {
    const { out } = runPlan(['--envoys', '1000000', '--parameter-sets', '100', '--plane-streams', '50']);
    expect(out).to.match(/streams at the control plane +200, more than the 50 that it bears/);
  });

  for (const flags of ['--envoys 0', '--envoys -1', '--envoys many', '--envoy 1', '--regions']) {
    it(`refuses ${flags}: what is wrong and the usage, exit 2`, () => {
      const { out, err, code } = runPlan(flags.split(' '));
      expect(code).to.equal(2);
      expect(out).to.equal('');
      expect(err).to.include('--env').and.to.include('Usage: npm run plan');
    });
  }
});
