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
    expect(of({ envoys: 1_000_000, parameterSets: 100 })).to.include({ tiers: 2, planeStreams: 600 });
    expect(of({}).tiers).to.equal(1);
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
