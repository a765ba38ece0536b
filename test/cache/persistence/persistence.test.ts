import { cpSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { expect } from 'chai';
import { contentIn } from '../../../src/cache/cached-resource.ts';
import { DiskServer, prepareFile } from '../../../src/cache/persistence/disk-server.ts';
import type { Row } from '../../../src/cache/persistence/records.ts';
import { resourceName } from '../../../src/model/brand.ts';
import { isVariant } from '../../../src/model/catalog.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { NO_PARAMETERS } from '../../../src/model/parameters.ts';
import { History } from '../../../src/releases/history.ts';
import { eventually } from '../../e2e/support/eventually.ts';
import { type, when } from '../../support/in-memory-relay.ts';
import {
  Cache,
  type CacheOptions,
  central,
  clockAt,
  dump,
  interest,
  named,
  onDisk,
  says,
  temporary,
  wild,
} from './support.ts';

/** What the first version wrote for one resource. */
const versionOne = `
  CREATE TABLE entry (
    kind TEXT NOT NULL, type TEXT NOT NULL, key TEXT NOT NULL,
    body TEXT NOT NULL, payloads TEXT NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (kind, type, key)
  ) WITHOUT ROWID;
  CREATE TABLE payload (id INTEGER PRIMARY KEY, hash TEXT NOT NULL, bytes BLOB NOT NULL);
  CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL, entries INTEGER NOT NULL, sum INTEGER NOT NULL
  );
  PRAGMA application_id = 0x64697374;
  PRAGMA user_version = 1;
  INSERT INTO entry VALUES ('resource', 'type', 'a', '{}', '1', 0);
  INSERT INTO payload VALUES (1, '0123456789abcdef', x'00');
  INSERT INTO meta VALUES (1, '{}', 1, 0);`;

describe('persistence', () => {
  let directory: ReturnType<typeof temporary>;
  const open = (options: Omit<CacheOptions, 'directory'> = {}) =>
    Cache.open({ directory: directory.path, ...options });
  const file = () => join(directory.path, 'cache.sqlite');
  /** A row that counts, whatever is in it. */
  const addChange = (change: string): void => {
    const values = ['change', type('cds'), '1', change];
    const checksum = crc32(values.join('\n'));
    const database = new DatabaseSync(file());
    const insert = 'INSERT INTO entry (kind, type, key, body, checksum) VALUES (?, ?, ?, ?, ?)';
    database.prepare(insert).run(...values, checksum);
    database.exec(`UPDATE meta SET entries = entries + 1, sum = (sum + ${checksum}) & 4294967295`);
    database.close();
  };
  const contents = (): unknown => {
    const database = new DatabaseSync(file());
    const { payloads } = database.prepare('SELECT count(*) AS payloads FROM payload').get() ?? {};
    database.close();
    return payloads;
  };

  beforeEach(() => {
    directory = temporary();
  });
  afterEach(() => directory.remove());

  /** Two types, by wildcard and by name, with variants, aliases, metadata and an absence. */
  function fill({ store }: Cache): void {
    const everything = interest('cds');
    const prod = interest('eds', 'web', { env: 'prod' });
    const dev = interest('eds', 'web', { env: 'dev' });
    const gone = interest('rds', 'missing');
    for (const one of [everything, prod, dev, gone]) store.addInterest(one);
    store.apply(says('cds', { resources: { a: 'one', b: 'two' }, resolved: [everything], version: '7' }));
    store.apply(says('cds', { holder: named, resources: { a: 'one' } }));
    store.apply(
      says('eds', {
        holder: named,
        resources: { web: 'p' },
        more: { constraints: when({ env: 'prod' }), aliases: ['www'], metadata: Buffer.from('meta') },
        resolved: [prod],
      }),
    );
    store.apply(
      says('eds', {
        holder: named,
        resources: { web: 'd' },
        more: { constraints: when({ env: 'dev' }), any: undefined },
        resolved: [dev],
      }),
    );
    store.apply(says('rds', { holder: named, resolved: [gone] }));
  }

  it('restores exactly what was there', async () => {
    const before = await open();
    fill(before);
    const was = dump(before.store);
    await before.close();
    const after = await open();
    expect(dump(after.store)).to.equal(was);
    expect(after.store.isResolved(interest('cds'))).to.equal(true);
    expect(after.store.bodyBytes).to.equal(before.store.bodyBytes);
    expect(after.messages()).to.deep.equal(['the persisted cache is loaded']);
    await after.close();
    const again = await open();
    expect(dump(again.store)).to.equal(was);
    await again.close();
  });

  it('writes while serving, not only at the end', async () => {
    const start = Date.now();
    const before = await open();
    fill(before);
    await before.written();
    expect(before.persistence.lastWrite).to.be.within(start, Date.now());
    expect(onDisk(directory.path, 'v-one')).to.equal(true);
    await before.close();
  });

  it('follows changes: of content, of holders, of interest, removals', async () => {
    const before = await open();
    fill(before);
    await before.written();
    before.store.apply(says('cds', { resources: { a: 'three', c: 'new' }, complete: true, version: '8' }));
    before.store.removeInterest(interest('eds', 'web', { env: 'dev' }));
    before.store.addInterest(interest('lds'));
    const was = dump(before.store);
    await before.close();
    const after = await open();
    expect(dump(after.store)).to.equal(was);
    await after.close();
  });

  it('writes what is released, and after a restart what upstream says is a change like any other', async () => {
    const before = await open();
    const everything = interest('cds');
    const gate = (cache: Cache): void => cache.store.held.gatedTypes(new Set([type('cds')]));
    gate(before);
    before.store.addInterest(everything);
    const first = { resources: { a: 'one', b: 'one' }, complete: true, version: '7' };
    const second = { resources: { a: 'two', c: 'new' }, complete: true, version: '8' };
    before.store.apply(says('cds', { ...first, resolved: [everything] }));
    await before.written();
    before.store.apply(says('cds', second));
    await before.close();
    const after = await open();
    gate(after);
    const seen = (cohort: 'released' | 'canary', name: string) => {
      const value = after.store.cohorts[cohort].peek(type('cds'), resourceName(name), NO_PARAMETERS);
      return isVariant(value) ? value.version : value;
    };
    expect(['a', 'b', 'c'].map((name) => seen('released', name))).to.deep.equal(['v-one', 'v-one', 'v-new']);
    expect(after.store.version(everything)).to.equal('7');
    after.store.apply(says('cds', { ...second, resolved: [everything] }));
    expect(['a', 'b', 'c'].map((name) => seen('released', name))).to.deep.equal(['v-one', 'v-one', 'v-new']);
    expect(['a', 'b', 'c'].map((name) => seen('canary', name))).to.deep.equal(['v-two', 'unknown', 'v-new']);
    after.store.held.release();
    await after.close();
    const again = await open();
    expect(again.store.version(everything)).to.equal('8');
    expect(dump(again.store)).to.equal(dump(after.store));
    await again.close();
  });

  it('keeps what is frozen over a restart, though its upstream has got another name', async () => {
    let name = 'central';
    const renamed = { upstreams: () => [{ ...central, name }], serves: () => name };
    const everything = interest('cds');
    const frozen = async (): Promise<Cache> => {
      const cache = await open(renamed);
      cache.store.held.freeze({}, { operator: 'somebody', reason: 'a test' });
      return cache;
    };
    const seen = (cache: Cache): readonly string[] =>
      ['a', 'b'].map((one) => {
        const value = cache.store.cohorts.released.peek(type('cds'), resourceName(one), NO_PARAMETERS);
        return isVariant(value) ? value.version : value;
      });
    const before = await frozen();
    before.store.addInterest(everything);
    const first = { resources: { a: 'one', b: 'one' }, complete: true };
    const second = { resources: { a: 'two', b: 'one' }, complete: true };
    before.store.apply(says('cds', { ...first, resolved: [everything] }));
    before.store.apply(says('cds', second));
    name = 'next';
    before.store.markRestored('central', () => name);
    const holder = { ...wild, key: 'next wildcard', upstream: 'next' };
    before.store.apply(says('cds', { ...second, holder, resolved: [everything] }));
    expect(seen(before)).to.deep.equal(['v-one', 'v-one']);
    await before.close();
    const after = await frozen();
    expect(seen(after)).to.deep.equal(['v-one', 'v-one']);
    after.store.apply(says('cds', { ...second, holder, resolved: [everything] }));
    expect(seen(after)).to.deep.equal(['v-one', 'v-one']);
    await after.close();
  });

  it('keeps what a held name shows for those who asked by the name while it was held, though the wildcard goes', async () => {
    const before = await open();
    before.store.held.gatedTypes(new Set([type('cds')]));
    const prod = { env: 'prod' };
    const [all, byName] = [interest('cds', '*', prod), interest('cds', 'a', prod)];
    const [allDev, byAlias] = [interest('cds', '*', { env: 'dev' }), interest('cds', 'www', prod)];
    const tell = (env: string, content: string, part: Parameters<typeof says>[1]): void => {
      const more = { constraints: when({ env }), aliases: ['www'] };
      before.store.apply(says('cds', { resources: { a: content }, more, ...part }));
    };
    for (const one of [all, allDev]) before.store.addInterest(one);
    tell('prod', 'one', { resolved: [all] });
    tell('dev', 'one', { resolved: [allDev] });
    tell('dev', 'two', {}); // it waits
    await before.written();
    before.store.addInterest(byName);
    tell('prod', 'one', { holder: named, resolved: [byName] });
    await before.written();
    const other = { ...named, key: 'another named' };
    before.store.addInterest(byAlias);
    before.store.apply(says('cds', { holder: other, resolved: [byAlias] })); // changes no variant
    await before.close();
    const after = await open();
    const seen = () => {
      const value = after.store.cohorts.released.peek(type('cds'), byName.selector, byName.parameters);
      return isVariant(value) ? value.version : value;
    };
    after.store.removeInterest(all);
    expect(seen()).to.equal('v-one');
    after.store.apply(says('cds', { holder: named, resolved: [byName] }));
    expect(seen()).to.equal('v-one');
    after.store.apply(says('cds', { holder: other, resolved: [byAlias] }));
    expect(seen()).to.equal('absent');
    await after.close();
  });

  it('keeps equal bytes once, and drops those that nobody has', async () => {
    const before = await open();
    const all = interest('cds', '*', { env: 'x' });
    before.store.addInterest(all);
    for (const env of ['x', 'y', 'z']) {
      before.store.apply(
        says('cds', { resources: { a: 'same' }, more: { constraints: when({ env }) }, resolved: [all] }),
      );
    }
    await before.close();
    expect(contents()).to.equal(1);
    const after = await open();
    after.store.apply(
      says('cds', { resources: { a: 'other' }, more: { constraints: when({ env: 'x' }) }, complete: true }),
    );
    await after.close();
    expect(contents()).to.equal(1);
  });

  it('keeps which of several matching variants a parameter set had (protocol §5, Ambiguity)', async () => {
    const before = await open();
    const both = interest('eds', 'web', { env: 'prod', version: 'v1' });
    before.store.addInterest(both);
    before.store.apply(
      says('eds', {
        resources: { web: 'by version' },
        more: { constraints: when({ version: 'v1' }) },
        resolved: [both],
      }),
    );
    before.store.apply(
      says('eds', { resources: { web: 'by env' }, more: { constraints: when({ env: 'prod' }) } }),
    );
    await before.close();
    const after = await open();
    const value = after.store.resolve(both.type, both.selector, both.parameters);
    expect(value).to.have.property('version', 'v-by version');
    await after.close();
  });

  describe('what must not be on disk', () => {
    it('names under which nothing is there: clients can invent any', async () => {
      const before = await open();
      const invented = ['invented-1', 'invented-2'].map((name) => interest('rds', name));
      for (const one of invented) before.store.addInterest(one);
      before.store.apply(says('rds', { holder: named, resolved: invented.slice(1) }));
      await before.written();
      expect(onDisk(directory.path, 'invented')).to.equal(false);
      await before.close();
      const after = await open();
      expect([...after.store.tables]).to.deep.equal([]);
      await after.close();
    });

    it('a name is from when there is something until there is nothing', async () => {
      let cache = await open();
      const web = interest('rds', 'web');
      cache.store.addInterest(web);
      cache.store.apply(says('rds', { holder: named, resolved: [web] }));
      for (const there of [false, true, false]) {
        const more = there ? { resources: { web: 'it' } } : { complete: true };
        cache.store.apply(says('rds', { holder: named, ...more }));
        await cache.close();
        cache = await open();
        const interests = [...cache.store.tables].flatMap(([, table]) => [...table.interests.all()]);
        expect(interests.map((one) => one.interest.selector)).to.deep.equal(there ? ['web'] : []);
        if (!there) cache.store.addInterest(web);
      }
      await cache.close();
    });

    it('SDS secrets are not, in no file and at no time', async () => {
      const before = await open();
      before.store.addInterest(interest('sds', 'key'));
      before.store.addInterest(interest('cds'));
      before.store.apply(
        says('sds', { holder: named, resources: { key: 'S3CRET' }, resolved: [interest('sds', 'key')] }),
      );
      before.store.apply(says('cds', { resources: { a: 'PUBLIC' }, resolved: [interest('cds')] }));
      await before.written();
      expect(onDisk(directory.path, 'PUBLIC')).to.equal(true);
      expect(onDisk(directory.path, 'S3CRET')).to.equal(false);
      await before.close();
      expect(onDisk(directory.path, 'S3CRET')).to.equal(false);
      const after = await open();
      // Its lack is no absence.
      expect(after.store.resolve(type('sds'), resourceName('key'), NO_PARAMETERS)).to.equal('unknown');
      await after.close();
    });

    it('with secrets: true they are; without it later, not a byte stays', async () => {
      const before = await open({ leaveOut: [] });
      before.store.addInterest(interest('sds', 'key'));
      before.store.apply(
        says('sds', { holder: named, resources: { key: 'S3CRET' }, resolved: [interest('sds', 'key')] }),
      );
      before.store.addInterest(interest('cds'));
      before.store.apply(says('cds', { resources: { a: 'PUBLIC' }, resolved: [interest('cds')] }));
      await before.close();
      expect(onDisk(directory.path, 'S3CRET')).to.equal(true);
      const kept = await open({ leaveOut: [] });
      expect(kept.store.resolve(type('sds'), resourceName('key'), NO_PARAMETERS)).to.have.property(
        'version',
        'v-S3CRET',
      );
      await kept.close();
      const after = await open();
      expect(onDisk(directory.path, 'S3CRET')).to.equal(false);
      expect(after.store.isResolved(interest('cds'))).to.equal(true);
      expect(after.store.resolve(type('sds'), resourceName('key'), NO_PARAMETERS)).to.equal('unknown');
      await after.close();
    });

    it('nobody else may read the files', async () => {
      rmSync(directory.path, { recursive: true });
      const cache = await open();
      fill(cache);
      await cache.written();
      expect(statSync(directory.path).mode & 0o77).to.equal(0);
      for (const name of readdirSync(directory.path))
        expect(statSync(join(directory.path, name)).mode & 0o77, name).to.equal(0);
      await cache.close();
    });

    it('what must not be cached is not, and whoever sees it is unknown again (protocol §5, do_not_cache)', async () => {
      const before = await open();
      const [all, one, other] = [interest('cds'), interest('cds', 'volatile'), interest('cds', 'a')];
      for (const wanted of [all, one, other]) before.store.addInterest(wanted);
      before.store.apply(says('cds', { resources: { a: 'kept' }, resolved: [all, other] }));
      before.store.apply(
        says('cds', { resources: { volatile: 'FLEETING' }, more: { doNotCache: true }, resolved: [one] }),
      );
      await before.close();
      expect(onDisk(directory.path, 'FLEETING')).to.equal(false);
      const after = await open();
      expect([all, one, other].map((wanted) => after.store.isResolved(wanted))).to.deep.equal([
        false,
        false,
        true,
      ]);
      await after.close();
    });
  });

  describe('what is not restored', () => {
    it('a variant whose time to live has passed', async () => {
      let now = 1_000_000;
      const clock = clockAt(() => now);
      const before = await open({ clock });
      before.store.addInterest(interest('cds'));
      before.store.apply(
        says('cds', {
          resources: { short: '1' },
          more: { ttlMilliseconds: 1000 },
          resolved: [interest('cds')],
        }),
      );
      before.store.apply(says('cds', { resources: { long: '2' }, more: { ttlMilliseconds: 60_000 } }));
      await before.close();
      now += 30_000;
      const after = await open({ clock });
      const value = (of: Cache, name: string) =>
        of.store.resolve(type('cds'), resourceName(name), NO_PARAMETERS);
      const left = (of: Cache): number => {
        const long = value(of, 'long');
        return ((isVariant(long) && long.ttl?.deadline) || 0) - clock.monotonic();
      };
      expect(value(after, 'short')).to.equal('unknown');
      expect(left(after)).to.be.closeTo(30_000, 5000);
      await after.close();
      now -= 3_600_000;
      const setBack = await open({ clock });
      expect(left(setBack), 'never more than it was given').to.be.closeTo(60_000, 5000);
      await setBack.close();
    });

    const changes: readonly (readonly [string, Omit<CacheOptions, 'directory'>])[] = [
      [
        'of an upstream that is asked for something else now',
        { upstreams: () => [{ ...central, text: 'rules changed' }] },
      ],
      [
        'of an upstream that is somewhere else now',
        { upstreams: () => [{ ...central, places: ['other:1'] }] },
      ],
      ['of an upstream that is not there any more', { upstreams: () => [], serves: () => undefined }],
    ];
    for (const [title, options] of changes) {
      it(`what came ${title}; it leaves the disk, too`, async () => {
        const before = await open();
        fill(before);
        await before.close();
        const after = await open(options);
        expect(dump(after.store)).to.equal('');
        expect(after.messages('warn').length).to.equal(options.serves === undefined ? 1 : 0);
        await after.close();
        const again = await open();
        expect(dump(again.store)).to.equal('');
        await again.close();
        expect(contents()).to.equal(0);
      });
    }

    it('an upstream with one endpoint in common is the same', async () => {
      const before = await open();
      fill(before);
      const was = dump(before.store);
      await before.close();
      const after = await open({ upstreams: () => [{ ...central, places: ['new:1', 'cp:1'] }] });
      expect(dump(after.store)).to.equal(was);
      await after.close();
    });
  });

  it('tells since when what is restored may be out of date', async () => {
    let now = 5_000_000;
    const clock = clockAt(() => now);
    const current = await open({ clock });
    fill(current);
    now += 1000;
    await current.close();
    now += 60_000;
    const stale = await open({ clock, staleSince: () => 4_200_000 });
    expect(stale.loaded?.staleSince.get('central')).to.equal(5_001_000);
    await stale.close();
    const later = await open({ clock });
    expect(later.loaded?.staleSince.get('central')).to.equal(4_200_000);
    await later.close();
  });

  it('reads a state that an earlier version has written, without a checksum', async () => {
    const before = await open();
    fill(before);
    const was = dump(before.store);
    await before.close();
    const database = new DatabaseSync(file());
    database.exec(`UPDATE meta SET state = json_remove(state, '$.checksum')`);
    database.close();
    const after = await open();
    expect(dump(after.store)).to.equal(was);
    await after.close();
  });

  it('a file of an earlier version is kept under another name, with all that is in it', async () => {
    prepareFile(directory.path);
    const database = new DatabaseSync(file());
    database.exec(versionOne);
    database.close();
    const cache = await open();
    const [line] = cache.lines;
    expect([line?.level, line?.['reason']]).to.deep.equal([
      'error',
      'its schema is version 1, this one reads 2',
    ]);
    expect(cache.failures).to.deep.equal(['corrupt']);
    const aside = new DatabaseSync(String(line?.['file']));
    expect(
      aside
        .prepare('SELECT key FROM entry')
        .all()
        .map(({ key }) => key),
    ).to.deep.equal(['a']);
    expect(aside.prepare('SELECT count(*) AS count FROM payload').get()).to.deep.include({ count: 1 });
    aside.close();
    fill(cache);
    const was = dump(cache.store);
    await cache.close();
    const again = await open();
    expect(dump(again.store)).to.equal(was);
    await again.close();
  });

  describe('a file that is not what was written', () => {
    const cases: readonly (readonly [string, () => void, RegExp])[] = [
      [
        'of another program',
        () => {
          rmSync(file());
          const database = new DatabaseSync(file());
          database.exec('CREATE TABLE theirs (a)');
          database.close();
        },
        /another program/,
      ],
      ['that is no database', () => writeFileSync(file(), 'x'.repeat(10_000)), /not a database/],
      [
        'of another version of the schema',
        () => {
          const database = new DatabaseSync(file());
          database.exec('PRAGMA user_version = 99');
          database.close();
        },
        /version 99/,
      ],
      [
        'with a changed content',
        () => {
          const database = new DatabaseSync(file());
          database.exec(`UPDATE payload SET bytes = x'00' WHERE digest = (SELECT min(digest) FROM payload)`);
          database.close();
        },
        /checksum/,
      ],
      [
        'with a changed row',
        () => {
          const database = new DatabaseSync(file());
          database.exec(`UPDATE entry SET body = replace(body, 'true', 'false') WHERE kind = 'interest'`);
          database.close();
        },
        /checksum/,
      ],
      [
        'with a recorded change of another version',
        () => addChange('{"of":"another version"}'),
        /expected number/,
      ],
      [
        'with a recorded change at a time that is none',
        () => {
          const names = { added: 0, changed: 0, removed: 0, first: false, reason: '', names: [] };
          addChange(JSON.stringify({ at: 1e16, upstream: 'central', ...names }));
        },
        /expected number/,
      ],
      [
        'with a changed state',
        () => {
          const database = new DatabaseSync(file());
          database.exec(`UPDATE meta SET state = replace(state, '"text":"central"', '"text":"centra1"')`);
          database.close();
        },
        /state/,
      ],
      [
        'of an earlier version, written at a time that is none',
        () => {
          const database = new DatabaseSync(file());
          database.exec(`UPDATE meta SET state = json_set(json_remove(state, '$.checksum'), '$.at', 1e16)`);
          database.close();
        },
        /state/,
      ],
      [
        'with a row lost',
        () => {
          const database = new DatabaseSync(file(), { enableForeignKeyConstraints: false });
          database.exec(`DELETE FROM entry WHERE kind = 'resource' AND key = 'b'`);
          database.close();
        },
        /missing/,
      ],
      [
        'with a content lost',
        () => {
          const database = new DatabaseSync(file(), { enableForeignKeyConstraints: false });
          database.exec('DELETE FROM payload WHERE digest = (SELECT min(digest) FROM payload)');
          database.close();
        },
        /missing/,
      ],
      [
        'with a content lost, and what referred to it',
        () => {
          const database = new DatabaseSync(file());
          database.exec('DELETE FROM entry_payload; DELETE FROM payload');
          database.close();
        },
        /missing/,
      ],
      [
        'with damaged pages',
        () => {
          const bytes = readFileSync(file());
          bytes.fill(0xff, 4096, 3 * 4096);
          writeFileSync(file(), bytes);
        },
        /./,
      ],
    ];
    for (const [title, damage, reason] of cases) {
      it(`${title}: set aside with one line, and the relay starts empty`, async () => {
        const before = await open();
        fill(before);
        await before.close();
        damage();
        const after = await open();
        expect(dump(after.store)).to.equal('');
        expect(after.lines.map(({ level, message }) => `${level} ${message}`)).to.deep.equal([
          'error the persisted cache is unusable and set aside; a new one is begun',
        ]);
        expect(after.lines[0]?.['reason']).to.match(reason);
        const aside = readdirSync(directory.path).filter((name) => name.includes('.set-aside-'));
        expect(aside.length).to.be.at.least(1);
        fill(after);
        const was = dump(after.store);
        await after.close();
        const again = await open();
        expect(dump(again.store)).to.equal(was);
        expect(again.failures).to.deep.equal([]);
        await again.close();
      });
    }
  });

  it('one directory serves one process: another one says so, serves without, and takes over when it is free', async () => {
    const first = await open();
    fill(first);
    await first.written();
    const second = await open();
    expect(second.messages('error')).to.deep.equal(['the cache cannot be persisted; serving goes on']);
    expect(second.lines.at(-1)).to.include({ kind: 'locked' });
    expect(second.persistence.failure?.reason).to.equal('locked');
    expect(second.lines.filter((line) => 'file' in line)).to.deep.equal([]);
    expect(dump(second.store), 'it begins with what the first has').to.equal(dump(first.store));
    second.store.addInterest(interest('lds'));
    second.store.apply(
      says('lds', { resources: { listener: 'of the second' }, resolved: [interest('lds')] }),
    );
    const was = dump(second.store);
    await first.close();
    await eventually(() => expect(second.messages('info')).to.include('the cache is persisted again'));
    await second.close();
    const third = await open();
    expect(dump(third.store)).to.equal(was);
    await third.close();
  });

  const changed = { kind: 'change', type: type('cds'), key: '1', body: '{"of":"another version"}' } as const;
  const ofAnotherVersion: readonly (readonly [string, string, readonly Row[]])[] = [
    ['a state', '{"of":"another version"}', []],
    [
      'a recorded change',
      JSON.stringify({ at: 1, upstreams: [], revision: 7 }),
      [{ ...changed, payloads: [] }],
    ],
  ];
  for (const [title, state, rows] of ofAnotherVersion) {
    it(`${title} of another version, whose process has the directory, is left to it: this one serves without, and takes over when it is free`, async () => {
      const first = new DiskServer(directory.path);
      const commit = () => {
        first.answer({ operation: 'begin', args: [true] });
        first.answer({ operation: 'put', args: [{ rows, payloads: [] }] });
        expect(first.answer({ operation: 'commit', args: [state] }).ok).to.equal(true);
      };
      first.answer({ operation: 'open', args: [[]] });
      commit();
      const second = await open();
      expect([second.loaded, second.failures[0]]).to.deep.equal([undefined, 'locked']);
      expect(second.persistence.failure?.reason).to.equal('locked');
      const [error, ...more] = second.lines.filter(({ level }) => level === 'error');
      expect([error?.message, more]).to.deep.equal(['the cache cannot be persisted; serving goes on', []]);
      expect(error?.['reason']).to.match(/another process has it open.*; what it has cannot be read: ./);
      fill(second);
      const was = dump(second.store);
      commit();
      first.answer({ operation: 'close', args: [] });
      await eventually(() => expect(second.messages('info')).to.include('the cache is persisted again'));
      await second.close();
      expect(readdirSync(directory.path)).to.deep.equal(['cache.sqlite']);
      const third = await open();
      expect(dump(third.store)).to.equal(was);
      await third.close();
    });
  }

  it('a change whose upstream is asked for something else now has no bodies any more, on disk too', async () => {
    const limits = () => ({ maxBytes: 1_000_000, maxAgeMs: 1_000_000 });
    const history = () => new History(systemClock, limits, () => {});
    const before = history();
    const first = await open({ history: before });
    fill(first);
    const [cds, name] = [type('cds'), resourceName('a')];
    const content = { before: [], after: contentIn(first.store.tables.get(cds)?.resources.get(name)) };
    const names = [{ name, change: 'ADDED', bytes: 1, verdict: 'RELEASED', content }] as const;
    const counts = { added: 1, changed: 0, removed: 0 };
    const rest = { ...counts, names, at: systemClock.now(), first: false, releasedAt: 0, reason: '' };
    // One of an upstream, and one that an operator has made of its content.
    for (const upstream of ['central', '']) {
      const { revision } = before.add({ ...rest, upstream, type: cds });
      first.persistence.journal.change(cds, revision);
    }
    await first.close();
    const kept = ({ persistence }: Cache) =>
      persistence.restored.changes.map((change) => change.names[0]?.content?.after.length);
    for (const time of ['the first', 'the second']) {
      const after = history();
      const next = await open({ upstreams: () => [{ ...central, text: 'rules changed' }], history: after });
      expect(kept(next), `${time} start with other rules`).to.deep.equal([undefined, undefined]);
      after.restore(next.persistence.restored);
      await next.close();
    }
  });

  it('a revision is never used twice: who is killed leaves some out, who is stopped none', async () => {
    const history = { lastRevision: 40, changes: () => [], get: () => undefined };
    const first = await open({ history });
    fill(first);
    await first.written();
    // As after a kill: what it would have told next is not on disk.
    const copy = temporary();
    cpSync(directory.path, copy.path, { recursive: true });
    const killed = await Cache.open({ directory: copy.path });
    expect(killed.persistence.restored.lastRevision).to.equal(1040);
    await killed.close();
    copy.remove();
    await first.close();
    const stopped = await open();
    expect(stopped.persistence.restored.lastRevision).to.equal(40);
    await stopped.close();
  });

  it('a directory that cannot be made: said once, counted each time; and written whole as soon as it can', async () => {
    directory.remove();
    writeFileSync(directory.path, 'a file is in the way');
    const cache = await open();
    fill(cache);
    await eventually(() => expect(cache.failures.length).to.be.at.least(2));
    expect(cache.messages()).to.deep.equal(['the cache cannot be persisted; serving goes on']);
    expect(cache.persistence.lagSeconds).to.be.above(0);
    rmSync(directory.path);
    await eventually(() => expect(cache.messages('info')).to.deep.equal(['the cache is persisted again']));
    expect(cache.persistence.lagSeconds).to.equal(0);
    const was = dump(cache.store);
    await cache.close();
    const after = await open();
    expect(dump(after.store)).to.equal(was);
    await after.close();
  });

  it('a directory where none can be made is an error, not an endless attempt', function () {
    if (!existsSync('/proc/self')) this.skip();
    expect(() => prepareFile('/proc/nowhere/cache')).to.throw(/ENOENT/);
  });

  it('makes the directory where there is none', async () => {
    const nested = join(directory.path, 'a', 'b');
    const cache = await open({});
    await cache.close();
    const other = await Cache.open({ directory: nested });
    await other.close();
    expect(existsSync(join(nested, 'cache.sqlite'))).to.equal(true);
  });
});
