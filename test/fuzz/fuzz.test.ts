import { expect } from 'chai';
import { known } from './findings.ts';
import { fuzzAll } from './fuzz-all.ts';
import { fuzz, tryOne } from './run.ts';
import type { Subject } from './subject.ts';
import { subjects } from './subjects.ts';

const corpus = [Buffer.from('well-formed')];

describe('mangled input', () => {
  it('never crashes, blocks or grows what takes it', async function () {
    this.timeout(600_000);
    await fuzzAll(0, 500);
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

  it('finds a blocked event loop', async function () {
    this.timeout(60_000);
    const subject: Subject = {
      name: 'spins',
      corpus,
      open: () => ({
        take(bytes) {
          const { user } = process.cpuUsage();
          while (bytes.length !== 11 && process.cpuUsage().user - user < 250_000);
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
        return { take: () => all.push(Buffer.alloc(10_000)) };
      },
    };
    expect((await fuzz(subject, 0, 500)).findings[0]?.problem).to.contain('bytes are kept');
  });
});
