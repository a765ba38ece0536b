import { chmodSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { DiskServer } from '../../../src/cache/persistence/disk-server.ts';
import type { DiskReply, Row } from '../../../src/cache/persistence/records.ts';
import { Cache, interest, says, temporary } from './support.ts';

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
      const replies: DiskReply[] = [];
      const copiesBefore = copies();
      withoutPower(() => {
        const server = new DiskServer(directory.path, (reply) => replies.push(reply));
        server.take({ kind: 'open', secrets: false, discard: undefined });
        server.take({ kind: 'load' });
        server.take({ kind: 'begin', replace: false });
        server.take({ kind: 'close' });
      });
      expect(replies.map(({ kind }) => kind)).to.deep.equal([
        'opened',
        'part',
        'part',
        'done',
        'failed',
        'done',
      ]);
      const rows = replies.flatMap((reply): readonly Row[] => (reply.kind === 'part' ? reply.part.rows : []));
      expect(rows.map(({ kind }) => kind)).to.have.members(['resource', 'interest', 'version']);
      const failed = replies.find((reply) => reply.kind === 'failed');
      expect(failed?.error).to.deep.equal({
        kind: 'read_only',
        message: 'the directory cannot be written to',
      });
      expect(copies()).to.equal(copiesBefore);
    } finally {
      chmodSync(directory.path, 0o755);
      directory.remove();
    }
  });
});
