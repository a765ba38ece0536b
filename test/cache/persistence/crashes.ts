import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Process } from '../../e2e/support/process.ts';
import { slowness } from '../../support/cpu.ts';
import { Cache, digestOf, dump, interest, temporary } from './support.ts';

export interface Crashes {
  /** Revisions written since the last crash that were on disk, summed up. */
  readonly kept: number;
  /** Revisions that were made but not on disk yet: at most these are lost. */
  readonly lost: number;
  /** Crashes after which the database was not as it had been before. */
  readonly moved: number;
}

/**
 * Kills a writing process at a random moment, so many times, or more until a quarter of them met a write. Each time what is loaded must be one of the revisions that
 * were, whole, and a later one than the last time; and the wildcard must be known.
 */
export async function crash(times: number, random: () => number): Promise<Crashes> {
  const directory = temporary();
  const revisions = join(directory.path, 'revisions');
  const result = { kept: 0, lost: 0, moved: 0 };
  let answered = false;
  let next = writer();
  try {
    for (let time = 0; time < times || (result.moved < times / 4 && time < 5 * times); time++) {
      const child = next;
      next = writer(); // it gets ready meanwhile
      writeFileSync(revisions, '');
      child.write(`go ${directory.path} ${Math.floor(random() * 2 ** 32)}`);
      await child.line(/^running/);
      await sleep(random() ** 2 * 250 * slowness());
      await child.stop('SIGKILL');
      const known = readFileSync(revisions, 'utf8').trimEnd().split('\n');
      const cache = await Cache.open({ directory: directory.path });
      const found = known.lastIndexOf(digestOf(cache.store));
      expect(cache.messages('error'), `crash ${time}`).to.deep.equal([]);
      const loaded = found >= 0 ? '' : `${cache.messages().join('\n')}\n${dump(cache.store).slice(0, 5000)}`;
      expect(found, `crash ${time} of ${known.length}: this never was: ${loaded}`).to.be.at.least(0);
      const settled = cache.store.isResolved(interest('cds'));
      if (answered) expect(settled, `crash ${time}: the wildcard is unknown`).to.equal(true);
      answered = settled;
      result.kept += found;
      if (found > 0) result.moved++;
      result.lost += known.length - 1 - found;
      await cache.close();
    }
    return result;
  } finally {
    await next.stop('SIGKILL');
    directory.remove();
  }
}

function writer(): Process {
  const args = ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'crashing-writer.ts')];
  return new Process({ command: process.execPath, args });
}
