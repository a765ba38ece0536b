import { expect } from 'chai';
import { longTest } from '../support/cases.ts';
import { slower, slowness } from '../support/cpu.ts';
import { known } from './findings.ts';
import { fuzzAll } from './fuzz-all.ts';
import { fuzz, tryOne } from './run.ts';
import type { Subject } from './subject.ts';
import { subjects } from './subjects.ts';

/** Uses so many milliseconds of CPU; asks for them seldom, since the system's answer is most of it. */
function spin(milliseconds: number): void {
  const before = process.cpuUsage();
  const used = (): number => {
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
  for (let turn = 0; turn % 100_000 !== 0 || used() < milliseconds; turn++);
}

const corpus = [Buffer.from('well-formed')];

describe('mangled input', () => {
  it('never crashes, blocks or grows what takes it', async function () {
    this.timeout(600_000);
    await fuzzAll(0, 15);
  });

  for (const { name, subject, input } of known) {
    it(`found before: ${name}`, async () => {
      const found = (await subjects()).find((one) => one.name === subject);
      if (found === undefined) throw new Error(`there is no subject ${subject}`);
      expect(tryOne(found, input)).to.equal(undefined);
    });
  }
});

describe('the search for mangled input that does harm', () => {
  it('finds an exception', async () => {
    const subject: Subject = {
      name: 'throws',
      corpus,
      open: () => ({
        take(bytes) {
          if (bytes.includes(0xff)) throw new Error('no UTF-8');
        },
      }),
    };
    expect((await fuzz(subject, 0, 500)).findings[0]?.problem).to.contain('no UTF-8');
  });

  longTest('finds a blocked event loop', async () => {
    const subject: Subject = {
      name: 'spins',
      corpus,
      open: () => ({
        take(bytes) {
          if (bytes.length !== 11) spin(400 * slowness() * slower());
        },
      }),
    };
    expect((await fuzz(subject, 0, 1)).findings[0]?.problem).to.match(/^took \d+ ms of CPU$/);
  });

  it('finds what is kept', async () => {
    const subject: Subject = {
      name: 'keeps',
      corpus,
      open: () => {
        const all: Buffer[] = [];
        // Much more than what earlier tests left, which may go meanwhile.
        return { take: () => all.push(Buffer.alloc(100_000)) };
      },
    };
    expect((await fuzz(subject, 0, 500)).findings[0]?.problem).to.contain('bytes are kept');
  });
});
