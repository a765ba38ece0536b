import { expect } from 'chai';
import { fuzz } from './run.ts';
import { subjects } from './subjects.ts';

/** So many cases of each subject; the database file, which goes to the disk each time, gets a tenth. */
export async function fuzzAll(seed: number, cases: number): Promise<void> {
  for (const subject of await subjects()) {
    const share = subject.name === 'the database file' ? cases / 10 : cases;
    const { done, findings } = await fuzz(subject, seed, share);
    expect(findings.map((finding) => JSON.stringify(finding)).join('\n'), subject.name).to.equal('');
    expect(done, subject.name).to.equal(share);
  }
}
