import { chmodSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { DiskServer, prepareFile } from '../../../src/cache/persistence/disk-server.ts';
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
  it('is read all the same, from a copy; it says why it cannot be written', async () => {
    const directory = temporary();
    const copies = temporary();
    chmodSync(copies.path, 0o777);
    const usual = process.env['TMPDIR'];
    try {
      const before = await Cache.open({ directory: directory.path });
      before.store.addInterest(interest('cds'));
      before.store.apply(says('cds', { resources: { a: '1' }, resolved: [interest('cds')] }));
      await before.close();
      chmodSync(join(directory.path, 'cache.sqlite'), 0o444);
      chmodSync(directory.path, 0o555);
      process.env['TMPDIR'] = copies.path;
      withoutPower(() => {
        const server = new DiskServer(directory.path);
        const opened = server.answer({ operation: 'open', args: [[], undefined, true] });
        expect(opened).to.have.nested.property('value.state');
        expect(opened).to.have.nested.property(
          'value.unwritable.message',
          'the directory cannot be written to',
        );
        const rows = partsOf(server).flatMap((part) => part.rows);
        expect(rows.map(({ kind }) => kind)).to.have.members(['resource', 'interest', 'version']);
        expect(readdirSync(copies.path), 'all is read').to.be.empty;
        const again = server.answer({ operation: 'open', args: [[]] });
        expect(again, 'to write').to.have.nested.property('error.kind', 'read_only');
        expect(readdirSync(copies.path)).to.be.empty;
        server.answer({ operation: 'close', args: [] });
      });
      expect(readdirSync(copies.path)).to.be.empty;
    } finally {
      if (usual === undefined) delete process.env['TMPDIR'];
      else process.env['TMPDIR'] = usual;
      copies.remove();
      chmodSync(directory.path, 0o755);
      directory.remove();
    }
  });
});

describe('what is on disk', () => {
  it('is read in parts of at most 1,000 rows and 1,000 contents, however small they are', async () => {
    const directory = temporary();
    try {
      const cache = await Cache.open({ directory: directory.path });
      cache.store.addInterest(interest('cds'));
      const resources = Object.fromEntries(Array.from({ length: 2500 }, (_, at) => [`c${at}`, `${at}`]));
      cache.store.apply(says('cds', { resources, resolved: [interest('cds')] }));
      await cache.close();
      const server = new DiskServer(directory.path);
      expect(server.answer({ operation: 'open', args: [[]] }).ok).to.equal(true);
      const parts = partsOf(server);
      server.answer({ operation: 'close', args: [] });
      const count = (of: 'rows' | 'payloads') => parts.map((part) => part[of].length);
      expect(count('payloads').reduce((sum, some) => sum + some)).to.equal(2500);
      expect(Math.max(...count('rows'), ...count('payloads'))).to.be.at.most(1000);
    } finally {
      directory.remove();
    }
  });
});

describe('a directory that another process has', () => {
  let directory: ReturnType<typeof temporary>;
  let first: DiskServer;
  let second: DiskServer;
  const usual = process.env['TMPDIR'];

  beforeEach(() => {
    directory = temporary();
    [first, second] = [new DiskServer(directory.path), new DiskServer(directory.path)];
    expect(first.answer({ operation: 'open', args: [[]] }).ok).to.equal(true);
  });
  afterEach(() => {
    if (usual === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = usual;
    for (const server of [first, second]) server.answer({ operation: 'close', args: [] });
    directory.remove();
  });

  it('is locked also where no copy of it can be made; the error says where', () => {
    process.env['TMPDIR'] = join(directory.path, 'none');
    const opened = second.answer({ operation: 'open', args: [[], undefined, true] });
    expect(opened).to.have.nested.property('error.kind', 'locked');
    expect(opened)
      .to.have.nested.property('error.message')
      .that.includes('another process has it open')
      .and.includes(`a copy in ${process.env['TMPDIR']} (TMPDIR) cannot be made or read: `);
  });

  it('is never set aside, whatever is thought of its file', () => {
    const opened = second.answer({ operation: 'open', args: [[], 'it is of another version'] });
    expect(opened).to.have.nested.property('error.kind', 'locked');
    expect(readdirSync(directory.path).filter((name) => name.includes('set-aside'))).to.be.empty;
    first.answer({ operation: 'begin', args: [true] });
    first.answer({ operation: 'commit', args: ['{}'] });
    first.answer({ operation: 'close', args: [] });
    const free = second.answer({ operation: 'open', args: [[], 'it is of another version'] });
    expect(free).to.have.nested.property('value.setAside.reason', 'it is of another version');
    expect(free).to.have.nested.property('value.state', undefined);
  });
});

describe('a file that is empty', () => {
  it('is not set aside', () => {
    const directory = temporary();
    try {
      prepareFile(directory.path);
      const server = new DiskServer(directory.path);
      const opened = server.answer({ operation: 'open', args: [[], 'the disk was full'] });
      expect(opened).to.have.nested.property('value.setAside', undefined);
      server.answer({ operation: 'close', args: [] });
    } finally {
      directory.remove();
    }
  });
});

describe('a file with the marks of this program', () => {
  it('and other tables is damaged, and set aside', () => {
    const directory = temporary();
    try {
      const other = new DatabaseSync(join(directory.path, 'cache.sqlite'));
      other.exec('CREATE TABLE other (id); PRAGMA application_id = 0x64697374; PRAGMA user_version = 2');
      other.close();
      const server = new DiskServer(directory.path);
      const opened = server.answer({ operation: 'open', args: [[]] });
      expect(opened).to.have.nested.property('value.setAside.reason', 'no such table: meta');
      server.answer({ operation: 'close', args: [] });
    } finally {
      directory.remove();
    }
  });
});
