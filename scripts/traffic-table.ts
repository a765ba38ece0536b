// What rollout.traffic finds within one bake (docs/adr/0161): simulated fleets, by seeds, so the table is always the same.
// `node scripts/traffic-table.ts [--fleets 2000]`: some minutes.
import { parseArgs } from 'node:util';
import { type Errors, type FleetSettings, partFoundBad } from '../test/support/traffic-fleet.ts';

const { values } = parseArgs({ options: { fleets: { type: 'string', default: '2000' } } });
const canary = 1000;
/** Reports of all clients in one cell, about. */
const mostReports = 4e6;

process.stdout.write(
  '| errors | fail before | requests of the others | clients | good changes found bad, of 10,000 | 5 points found, bound 5 | the same, bound 2.5 | at most | 6 points, bound 5 | 7 points |\n|-|-|-|-|-|-|-|-|-|-|\n',
);
const kinds: readonly Errors[] = ['alike', 'differing', 'bursts'];
for (const errors of kinds)
  for (const base of [0, 0.01, 0.05, 0.2])
    for (const released of [1000, 9000])
      for (const clients of [1, 10, 100]) {
        if (base === 0 && errors !== 'alike') continue;
        const settings: FleetSettings = { base, canary, released, clients, errors, shape: 4 };
        const all = clients * (1 + released / canary);
        const fleets = Math.min(Number(values.fleets), Math.ceil(mostReports / 25 / all));
        const part = (rise: number, bound: number): number =>
          partFoundBad(fleets, settings, rise / 100, bound);
        const cells = [
          errors,
          `${base * 100} %`,
          released.toLocaleString('en'),
          clients,
          Math.round(part(0, 5) * 10_000),
          ...[part(5, 5), part(5, 2.5), errors === 'alike' ? mostPower(base, released) : undefined]
            .concat(part(6, 5), part(7, 5))
            .map((found) => (found === undefined ? '–' : `${(found * 100).toFixed(0)} %`)),
        ];
        process.stdout.write(`| ${cells.join(' | ')} |\n`);
      }

/** No test finds more that looks once, and finds one good change of 1,000 bad. */
function mostPower(base: number, released: number): number {
  const after = base + 0.05;
  const both = (base * released + after * canary) / (released + canary);
  const good = Math.sqrt(both * (1 - both) * (1 / canary + 1 / released));
  const bad = Math.sqrt((after * (1 - after)) / canary + (base * (1 - base)) / released);
  const quantile = 3.09;
  return normal((0.05 - quantile * good) / bad);
}

/** The standard normal distribution (Abramowitz and Stegun 26.2.17). */
function normal(z: number): number {
  const t = 1 / (1 + 0.2316419 * Math.abs(z));
  const sum =
    t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  const above = (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)) * sum;
  return z > 0 ? 1 - above : above;
}
