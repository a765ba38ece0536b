import { chmodSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { DiskServer } from '../../../src/cache/persistence/disk-server.ts';
import { Cache, interest, partsOf, says, temporary } from './support.ts';

const nobody = 65_534;

/** Root may write anywhere; others are held back by the mode. */
function withoutPower(run: () => void): void {
  const root = process.geteuid?.() === 0;
  if (root) process.seteuid?.(nobody);
  try {
    run();
  } finally {
    if (root) process.seteuid?.(0);
  }
}

describe('a directory that cannot be written to', () => {
  it('is read all the same, from a copy; every write says why it fails', async () => {
    const directory = temporary();
    const copies = () => readdirSync(tmpdir()).filter((name) => name.startsWith('distributary-')).length;
    try {
      const before = await Cache.open({ directory: directory.path });
      before.store.addInterest(interest('cds'));
      before.store.apply(says('cds', { resources: { a: '1' }, resolved: [interest('cds')] }));
      await before.close();
      chmodSync(join(directory.path, 'cache.sqlite'), 0o444);
      chmodSync(directory.path, 0o555);
      const copiesBefore = copies();
      withoutPower(() => {
        const server = new DiskServer(directory.path);
        expect(server.answer({ operation: 'open', args: [false] })).to.have.nested.property('value.state');
        const rows = partsOf(server).flatMap((part) => part.rows);
        expect(rows.map(({ kind }) => kind)).to.have.members(['resource', 'interest', 'version']);
        expect(server.answer({ operation: 'begin', args: [false] })).to.deep.equal({
          ok: false,
          error: { kind: 'read_only', message: 'the directory cannot be written to' },
        });
        server.answer({ operation: 'close', args: [] });
      });
      expect(copies()).to.equal(copiesBefore);
    } finally {
      chmodSync(directory.path, 0o755);
      directory.remove();
    }
  });
});
