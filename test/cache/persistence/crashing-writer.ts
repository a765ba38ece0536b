/**
 * A store that changes all the time, until the process is killed. On `go DIRECTORY SEED` it loads what is there. The
 * digest of each revision is in the file `revisions` before it can be in the database.
 */
import { openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setImmediate as turn } from 'node:timers/promises';
import { resourceName } from '../../../src/model/brand.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { UNCONSTRAINED } from '../../../src/model/constraints.ts';
import { when } from '../../support/in-memory-relay.ts';
import { Cache, digestOf, interest, named, says } from './support.ts';

/** Writes as fast as the disk allows, so that kills meet them. */
const hurried = { ...systemClock, after: (ms: number, run: () => void) => systemClock.after(ms / 50, run) };

/** Numbers below `end`; the same seed, the same numbers. */
function numbers(seed: number): (end: number) => number {
  let state = seed >>> 0;
  return (end) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * end);
  };
}

async function run(directory: string, seed: number): Promise<void> {
  const cache = await Cache.open({ directory, clock: hurried });
  const errors = cache.messages('error');
  // It would begin with nothing, and what is in the database would be no revision of its own.
  if (errors.length > 0) throw new Error(`the cache was not opened: ${JSON.stringify(cache.lines)}`);
  const { store } = cache;
  const revisions = openSync(join(directory, 'revisions'), 'a');
  const announce = (): void => {
    writeSync(revisions, `${digestOf(store)}\n`);
  };
  announce();
  process.stdout.write('running\n');
  const below = numbers(seed);
  const name = (): string => `r${below(12)}`;
  const wildcard = interest('cds');
  store.addInterest(wildcard);
  announce();
  for (let round = 0; ; round++) {
    const resources = Object.fromEntries(
      Array.from({ length: 1 + below(5) }, () => [name(), `${round}`.repeat(1 + below(30))]),
    );
    const wanted = interest('eds', name(), { env: `e${below(3)}` });
    switch (below(5)) {
      case 0:
        store.apply(says('cds', { resources, complete: true, resolved: [wildcard], version: `${round}` }));
        break;
      case 1:
        store.apply(says('cds', { resources, resolved: [wildcard] }));
        break;
      case 2:
        store.apply(says('cds', { removals: [{ name: resourceName(name()), constraints: UNCONSTRAINED }] }));
        break;
      case 3: {
        store.addInterest(wanted);
        announce();
        const constraints = when({ env: wanted.parameters.entries.get('env') ?? '' });
        const more = { constraints, metadata: Buffer.alloc(below(20_000), round) };
        store.apply(
          says('eds', {
            holder: named,
            resources: { [wanted.selector]: `${round}` },
            more,
            resolved: [wanted],
          }),
        );
        break;
      }
      default:
        store.removeInterest(wanted);
    }
    announce();
    if (below(3) === 0) await turn();
  }
}

createInterface({ input: process.stdin }).once('line', (line) => {
  const [, directory = '', seed = ''] = line.split(' ');
  void run(directory, Number(seed));
});
