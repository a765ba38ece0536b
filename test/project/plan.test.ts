import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { runPlan } from '../../scripts/plan-command.ts';
import { defaults, lastRetry, measured, type Plan, plan } from '../../scripts/plan-model.ts';

const docs = join(import.meta.dirname, '../../docs');
const page = join(docs, 'scale.md');
/** A block whose info string is a command line of the plan holds what the plan prints. */
const block = /^```plan (.*)\n([^]*?)^```$/gm;

/** The numbers of a row of a table. */
function figures(file: string, name: string): readonly number[] {
  const lines = readFileSync(join(docs, file), 'utf8').split('\n');
  const row = lines.find((line) => line.startsWith(`| ${name} |`));
  expect(row, `${file} has no row ${name}`).to.be.a('string');
  const cells = (row ?? '').slice(name.length + 4).split('|');
  return cells.map((cell) => Number.parseFloat(cell.replaceAll(/[*,\s]/g, '')));
}

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
    expect([...text.matchAll(block)]).to.have.length(6);
  });

  it('takes the constants of the table of docs/scale.md, in its order, and the table has no others', () => {
    const [, table = ''] = /^## Measured constants$([^]*?)^## /m.exec(readFileSync(page, 'utf8')) ?? [];
    const rows = table
      .split('\n')
      .filter((line) => line.startsWith('| '))
      .slice(1);
    const values = rows.map((row) => row.split(' | ')[1] ?? '');
    const numbers = values.map((value) => Number(value.replace(/ .*/, '').replace(',', '')));
    expect(numbers).to.deep.equal(Object.values(measured));
  });

  it('takes what docs/performance.md and docs/tenants.md have of storms and handshakes', () => {
    const { firstMicros, laterMicros, firstMtlsMicros, laterMtlsMicros, mtlsStreamKb } = measured;
    const storms = (name: string): readonly number[] => figures('performance.md', name).slice(0, 2);
    expect(storms('`start`: without TLS, clients stay')).to.deep.equal([firstMicros, laterMicros]);
    expect(storms('`storm-mtls`')).to.deep.equal([firstMtlsMicros, laterMtlsMicros]);
    expect(figures('performance.md', '… × `storm-mtls`')[0]).to.equal(measured.resumed);
    expect(figures('performance.md', '`workers-storm-mtls`: CPU of a connection')[0]).to.equal(
      measured.joinMtlsWorkers,
    );
    expect(readFileSync(join(docs, 'performance.md'), 'utf8')).to.include(`took ${mtlsStreamKb} KB.`);
    const handshakes = (key: string): readonly number[] => figures('tenants.md', `${key} | 1.3`);
    const [full = 0, resumed = 0] = handshakes('ECDSA P-256');
    const [fullRsa = 0, resumedRsa = 0] = handshakes('RSA 4096');
    expect(fullRsa / full).to.be.closeTo(measured.rsa4096, 0.005);
    expect(resumedRsa / resumed).to.be.closeTo(measured.rsa4096Resumed, 0.005);
  });

  it('a relay is bound by max_streams, by the time to the last client, or by its core', () => {
    expect(of({}).boundBy).to.equal('max_streams');
    expect(of({ secondsToLast: 0.1 })).to.include({ boundBy: 'seconds_to_last', streamsPerRelay: 2493 });
    expect(of({ updatesPerMinute: 6000 }).boundBy).to.equal('busy');
  });

  it('has room for the clients of a region that has failed, and one relay to spare', () => {
    const { relaysPerRegion, streamsPerRelay, envoysPerRegionAfterFailover } = of({ envoys: 300_000 });
    expect(envoysPerRegionAfterFailover).to.equal(150_000);
    expect((relaysPerRegion - 1) * streamsPerRelay).to.be.at.least(150_000);
  });

  it('plans a second tier where the control plane would see too many streams', () => {
    const large = { envoys: 1_000_000, regions: 10, parameterSets: 10 };
    expect(of(large)).to.include({ tiers: 2, upperRelays: 20, planeStreams: 200 });
    expect(of({ ...large, planeStreams: 100 })).to.include({ tiers: 2, upperRelays: 2, planeStreams: 20 });
    expect(of({}).tiers).to.equal(1);
  });

  it('plans no upper tier with as many streams as one tier has', () => {
    const small = { envoys: 100_000, regions: 10, planeStreams: 20 };
    expect(of(small)).to.include({ relaysPerRegion: 2, tiers: 2, upperRelays: 2, planeStreams: 6 });
    expect(of({ envoys: 10, regions: 1, planeStreams: 1 })).to.include({ tiers: 1, planeStreams: 6 });
  });

  it('says so if the control plane bears less than the least', () => {
    const { out } = runPlan(['--envoys', '1000000', '--parameter-sets', '100', '--plane-streams', '50']);
    expect(out).to.match(/streams at the control plane +200, more than the 50 that it bears/);
  });

  it('gives a region the cores to be back in time, and names what binds', () => {
    const region = { envoys: 50_000, regions: 1, tls: 'mtls' } as const;
    expect(of(region)).to.include({ boundBy: 'connect_timeout', returnBoundBy: 'connect_timeout' });
    expect(of({ ...region, connectTimeout: 15, secondsToReturn: 8 }).boundBy).to.equal('seconds_to_return');
    for (const changes of [region, { ...region, connectTimeout: 60 }, { ...region, resumed: 0.8 }]) {
      const { returnRelays, returnWorkers, returnCores } = of(changes);
      expect(returnRelays * returnWorkers).to.be.at.least(returnCores);
      const given = of({ ...changes, workers: returnWorkers });
      expect((given.relaysPerRegion - 1) * returnWorkers).to.be.at.least(returnCores);
    }
  });

  it('counts on 70 % of a core, and on no handshake after the 15 s that the relay gives it', () => {
    const one = { regions: 1, tls: 'mtls', connectTimeout: 15 } as const;
    const { firstMtlsMicros, firstMicros } = measured;
    const most = Math.floor((0.7 * 15e6) / (firstMtlsMicros - firstMicros));
    expect(of({ ...one, envoys: most }).returnCores).to.equal(1);
    expect(of({ ...one, envoys: most, connectTimeout: 600 }).streamsPerRelay).to.equal(most);
  });

  it('takes into account who resumes, the key, and that workers and TLS cost more', () => {
    const mtls = { envoys: 20_000, regions: 1, tls: 'mtls' } as const;
    const work = (changes: Partial<typeof defaults>): number => of({ ...mtls, ...changes }).returnSeconds;
    expect(work({ resumed: 1 }) / work({})).to.be.closeTo(0.76, 0.04);
    expect(work({ key: 'rsa-2048' })).to.equal(work({}));
    expect(work({ key: 'rsa-4096' })).to.be.above(2 * work({}));
    expect(work({ workers: 4 }) / work({})).to.be.closeTo(1.29, 0.05);
    expect(of(mtls).coresPerRegion / of({ ...mtls, tls: 'none' }).coresPerRegion).to.be.closeTo(1.33, 0.05);
    // The first process and each worker have a cache.
    const resources = (workers: number): number =>
      of({ ...mtls, envoys: 100, workers, resourcesMb: 1020 }).memoryMbPerRelay -
      of({ ...mtls, envoys: 100, workers }).memoryMbPerRelay;
    expect([1, 4].map(resources)).to.deep.equal([1000, 5000]);
  });

  it('knows when 99 % of Envoys have tried again', () => {
    let seed = 1;
    const random = (): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed / 2_147_483_647;
    };
    const retry = (down: number): number => {
      for (let at = 0, most = 0.5; ; most = Math.min(2 * most, 30)) {
        at += random() * most;
        if (at >= down) return at - down;
      }
    };
    for (const down of [0, 1, 2, 5, 8, 20, 100]) {
      const waits = Array.from({ length: 20_000 }, () => retry(down)).toSorted((a, b) => a - b);
      expect(lastRetry(down)).to.be.closeTo(waits[19_800] ?? 0, 1.5);
    }
  });

  it('refuses a time in which clients have not all tried again: cores would not help', () => {
    const { err, code } = runPlan(['--seconds-to-return', '20', '--seconds-down', '60']);
    expect(code).to.equal(2);
    expect(err).to.include('accepted is more than 27');
  });

  for (const flags of [
    '--envoys 0',
    '--envoys -1',
    '--envoys many',
    '--envoy 1',
    '--regions',
    '--envoys 5 --tls tls',
    '--envoys 5 --resumed 2',
    '--envoys 5 --workers 1.5',
  ]) {
    it(`refuses ${flags}: what is wrong and the usage, exit 2`, () => {
      const { out, err, code } = runPlan(flags.split(' '));
      expect(code).to.equal(2);
      expect(out).to.equal('');
      expect(err).to.include('--env').and.to.include('Usage: npm run plan');
    });
  }
});
