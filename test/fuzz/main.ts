import { parseArgs } from 'node:util';
import { type Finding, fuzz } from './run.ts';
import { subjects } from './subjects.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    /** Of each subject; left out: as many as the minutes allow. */
    cases: { type: 'string' },
    seed: { type: 'string', default: '0' },
    /** Only subjects whose name contains this. */
    subject: { type: 'string', default: '' },
  },
});

const chosen = (await subjects()).filter(({ name }) => name.includes(values.subject));
const share = (Number(values.minutes) * 60_000) / chosen.length;
const findings: Finding[] = [];
for (const subject of chosen) {
  const begun = performance.now();
  let said = begun;
  const count = values.cases === undefined ? Number.POSITIVE_INFINITY : Number(values.cases);
  const result = await fuzz(subject, Number(values.seed), count, (done) => {
    const now = performance.now();
    if (now - said > 10_000) {
      said = now;
      console.log(`${subject.name}: ${done} cases, ${Math.round(done / ((now - begun) / 1000))}/s`);
    }
    return values.cases !== undefined || now - begun < share;
  });
  const seconds = ((performance.now() - begun) / 1000).toFixed(0);
  const outcome = `${result.done} cases in ${seconds} s, ${result.findings.length} findings`;
  console.log(`${subject.name}: ${result.done === 0 ? 'not run: no time left' : outcome}`);
  for (const finding of result.findings) console.log(JSON.stringify(finding));
  findings.push(...result.findings);
}
process.exitCode = findings.length > 0 ? 1 : 0;
