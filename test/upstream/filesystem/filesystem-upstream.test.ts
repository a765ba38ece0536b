import { execFileSync } from 'node:child_process';
import { closeSync, openSync, watch } from 'node:fs';
import { mkdir, open, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import { typeUrl } from '../../../src/model/brand.ts';
import { CLAIMS_EVERYTHING } from '../../../src/upstream/claims.ts';
import { type Files, scanFiles } from '../../../src/upstream/filesystem/scan-files.ts';
import type { WatchDirectory } from '../../../src/wire/directory-watches.ts';
import { namePatterns } from '../../security/name-patterns.ts';
import { cds, clusters, eds, Harness, interest, variant } from './harness.ts';

const wrapper = 'type.googleapis.com/envoy.service.discovery.v3.Resource';

describe('upstream/filesystem', () => {
  let files: Harness;
  afterEach(() => files.close());

  it('publishes each type in one complete transaction', async () => {
    files = await Harness.make({
      'a.yaml': clusters('one', 'two'),
      'sub/b.json': JSON.stringify({ resources: [{ '@type': eds, cluster_name: 'one' }] }),
      'sub/ignored.txt': 'not a resource',
      '.hidden.yaml': 'not: [a resource',
    });
    files.upstream.subscribe(interest(cds, '*'));
    await files.start();
    await files.until(() => files.transactions.length >= 2);
    const [first, second] = files.transactions;
    expect([first?.type, second?.type], '§8 CDS before EDS').to.deep.equal([cds, eds]);
    expect(first?.complete).to.equal(true);
    expect(first?.resolved.map(({ selector }) => selector)).to.deep.equal(['*']);
    expect(first?.holder).to.deep.equal({ key: 'files:files', upstream: 'files', role: 'wildcard' });
    expect(files.names(cds)).to.deep.equal(['one', 'two']);
    expect(files.names(eds)).to.deep.equal(['one']);
    expect(files.upstream.state()).to.include({
      connected: true,
      everConnected: true,
      down: false,
      lastError: '',
    });
  });

  it('publishes only the types that changed', async () => {
    files = await Harness.make({
      'a.yaml': clusters('one'),
      'b.json': JSON.stringify({ resources: [{ '@type': eds, clusterName: 'one' }] }),
    });
    await files.start();
    await files.until(() => files.transactions.length === 2);
    await files.replace('a.yaml', clusters('one', 'two'));
    await files.until(() => files.names(cds).includes('two'));
    expect(files.transactions.slice(2).map(({ type }) => type)).to.deep.equal([cds]);
  });

  it('forgets types that clients invent', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    for (let round = 0; round < 10; round++) {
      const invented = Array.from({ length: 100 }, (_, at) => interest(typeUrl(`x/${round}-${at}`), 'n'));
      for (const one of invented) files.upstream.subscribe(one);
      await files.until(() => files.transactions.length === 1 + 100 * (round + 1));
      for (const one of invented) files.upstream.unsubscribe(one);
    }
    // It shows no type: what is in no other file may be in it.
    await files.replace('b.yaml', '');
    await files.until(() => files.transactions.length > 1001);
    expect(files.transactions.length).to.be.below(1001 + 300);
  });

  it('§3.9 a completed scan makes absent what is in no file, before and after it', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    files.upstream.subscribe(interest(cds, 'missing'));
    files.upstream.subscribe(interest(eds, 'missing'));
    await files.start();
    const settled = () =>
      files.transactions.flatMap((transaction) => transaction.resolved.map(({ selector }) => selector));
    await files.until(() => settled().length === 2);
    files.upstream.subscribe(interest(cds, 'one'));
    files.upstream.subscribe(interest(cds, 'later'));
    await files.until(() => settled().length === 4);
    const last = files.transactions.at(-1);
    expect(
      last?.resolved.map(({ selector }) => selector),
      'one answer for both',
    ).to.deep.equal(['one', 'later']);
    expect(last, 'it is in the cache').to.deep.include({ complete: false, puts: [] });
  });

  it('an interest that ended is not answered', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    const x = interest(cds, 'x');
    files.upstream.subscribe(x);
    files.upstream.unsubscribe(x);
    files.upstream.subscribe(interest(cds, 'y'));
    await files.until(() => files.transactions.length === 2);
    expect(files.transactions[1]?.resolved.map(({ selector }) => selector)).to.deep.equal(['y']);
  });

  it('removes what is deleted, the last resource of a type too', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.names(cds).length === 1);
    await rm(join(files.path, 'a.yaml'));
    await files.until(() => files.names(cds).length === 0);
    expect(files.transactions.at(-1)).to.deep.include({ type: cds, complete: true, puts: [] });
  });

  it('§3.10 a file without resources has its own version, from the start and after it had some', async () => {
    const file = (version: string, ...names: readonly string[]) =>
      `{ type_url: ${cds}, version_info: ${version}, ${clusters(...names)}}`;
    files = await Harness.make({ 'a.yaml': file('v1') });
    await files.start();
    const last = () => files.transactions.at(-1);
    await files.until(() => last()?.version === 'v1');
    await files.replace('a.yaml', file('v2', 'one'));
    await files.until(() => files.names(cds).includes('one'));
    await files.replace('a.yaml', file('v3'));
    await files.until(() => last()?.version === 'v3');
    expect(last()).to.deep.include({ type: cds, puts: [], complete: true });
  });

  it('§7 a bad file keeps its last good content and is reported once with its path and line', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one'), 'b.yaml': clusters('two') });
    await files.start();
    await files.until(() => files.names(cds).length === 2);
    await files.replace('a.yaml', `resources:\n  - "@type": ${cds}\n    name: one\n    lb_polcy: RANDOM\n`);
    await files.until(() => files.warnings.length > 0);
    await files.replace('b.yaml', clusters('three'));
    await files.until(() => files.names(cds).includes('three'));
    expect(files.names(cds)).to.deep.equal(['one', 'three']);
    expect(files.warnings).to.have.length(1);
    expect(files.warnings[0]).to.match(
      /resources\/a\.yaml:4:5: resources\[0\]\.lb_polcy: .*"lb_polcy" is unknown/,
    );
    expect(files.upstream.state().lastError).to.equal(files.warnings[0]);
    expect(files.upstream.state().staleSince).to.be.a('number');
    await files.replace('a.yaml', clusters('four'));
    await files.until(() => files.names(cds).includes('four'));
    expect(files.names(cds)).to.deep.equal(['four', 'three']);
    expect(files.upstream.state()).to.include({ lastError: '', staleSince: undefined });
    expect(files.notes).to.have.length(1);
    expect(files.rejected, 'told once').to.deep.equal([cds]);
  });

  it('"resolved" is said of a file only when nothing is wrong with it, and before what is newly wrong', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    const bad = `resources:\n  - "@type": ${cds}\n    name: one\n    lb_polcy: RANDOM\n`;
    await files.replace('a.yaml', bad);
    await files.until(() => files.warnings.length === 1);
    await files.replace('a.yaml', bad.replace('name: one', 'name: one: two'));
    await files.until(() => files.warnings.length === 2);
    await files.replace('a.yaml', clusters('two'));
    await files.until(() => files.names(cds).includes('two'));
    const [unknown = '', nested = ''] = files.warnings;
    expect(files.lines).to.deep.equal([
      unknown,
      `no longer found, but the file has other problems: ${unknown}`,
      nested,
      `resolved: ${nested}`,
    ]);
  });

  it('§3.9 a file that never was good leaves the types it names unknown, until it is good', async () => {
    files = await Harness.make({
      'a.yaml': clusters('one'),
      'bad.yaml': `${clusters('two')}  oops`,
      'package.json': '{ "name": "whole, and something else" }',
      'e.yaml': `resources: [{ "@type": ${eds}, cluster_name: one }]`,
    });
    for (const type of [cds, eds]) files.upstream.subscribe(interest(type, '*'));
    await files.start();
    await files.until(() => files.transactions.length === 2);
    const [first, second] = files.transactions;
    expect(first).to.deep.include({ type: cds, complete: false, resolved: [] });
    expect(files.names(cds)).to.deep.equal(['one']);
    expect(second?.resolved).to.have.length(1);
    expect(files.warnings.filter((text) => text.includes('unknown, not as absent: cds'))).to.have.length(1);
    await files.replace('bad.yaml', clusters('two'));
    await files.until(() => files.names(cds).includes('two'));
    expect(files.transactions.at(-1)).to.deep.include({ type: cds, complete: true });
    expect(files.transactions.at(-1)?.resolved).to.have.length(1);
  });

  for (const [what, content] of [
    ['is empty', ''],
    ['is cut off before its first type', '{ "resources": ['],
    ['is cut off after the type of a wrapper', `resources: [{ "@type": ${wrapper}, na`],
    ['is whole, and has no type', 'resources: [{ name: one }]'],
  ] as const) {
    it(`§3.9 while a file ${what} since the start, nothing cached is dropped, of all types, and who asks is answered`, async () => {
      files = await Harness.make({ 'a.yaml': clusters('one'), 'b.yaml': content });
      for (const type of [cds, eds]) files.upstream.subscribe(interest(type, '*'));
      await files.start();
      await files.until(() => files.transactions.length === 4);
      files.upstream.subscribe(interest(cds, 'later'));
      await files.until(() => files.transactions.length === 6);
      // As what is restored from disk: until the file is good.
      for (const { complete, resolved, holder } of files.transactions)
        expect([complete, resolved.length]).to.deep.equal([false, holder.restored ? 1 : 0]);
      expect(files.names(cds)).to.deep.equal(['one']);
      expect(files.warnings.join()).to.include('b.yaml: until this is good').and.include('of all types');
      await files.replace('b.yaml', clusters('two'));
      await files.until(() => files.names(cds).includes('two'));
      await files.until(() => files.transactions.slice(6).flatMap(({ resolved }) => resolved).length === 3);
      expect(files.transactions.at(-1)?.complete).to.equal(true);
    });
  }

  it('§3.9 while a file shows no type, what a good file loses goes, unless such a file came with the change', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one', 'two', 'three'), 'b.yaml': clusters('four') });
    await files.write('notes.json', '// notes');
    await files.start();
    await files.until(() => files.names(cds).length === 4);
    await files.replace('a.yaml', clusters('one', 'two'));
    await files.until(() => !files.names(cds).includes('three'));
    await rm(join(files.path, 'b.yaml'));
    await files.until(() => !files.names(cds).includes('four'));
    // Good once: what it had stays.
    await files.replace('a.yaml', '');
    await files.until(() => files.warnings.join().includes('a.yaml: the file is empty'));
    await files.write('c.yaml', clusters('five'));
    await files.until(() => files.names(cds).includes('five'));
    expect(files.names(cds)).to.deep.equal(['five', 'one', 'two']);
    await files.replace('a.yaml', clusters('one', 'two'));
    await files.until(() => files.notes.some((text) => text.includes('a.yaml: the file is empty')));
    // What has left one file may be in the other.
    await rename(files.path, join(files.root, 'changing'));
    await files.until(() => files.upstream.state().down);
    await writeFile(join(files.root, 'changing/a.yaml'), clusters('one'));
    await writeFile(join(files.root, 'changing/d.yaml'), '');
    await rename(join(files.root, 'changing'), files.path);
    await files.until(() => files.upstream.state().connected && files.warnings.join().includes('d.yaml'));
    await files.write('e.yaml', clusters('six'));
    await files.until(() => files.names(cds).includes('six'));
    expect(files.names(cds)).to.deep.equal(['five', 'one', 'six', 'two']);
    expect(files.transactions.filter(({ complete }) => complete)).to.deep.equal([]);
    await rm(join(files.path, 'c.yaml'));
    await files.until(() => !files.names(cds).includes('five'));
    await files.replace('d.yaml', clusters('seven'));
    await rm(join(files.path, 'notes.json'));
    await files.until(() => files.names(cds).join() === 'one,seven,six');
  });

  it('§3.9 what a good file loses stays while a file that never was good names its type', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one', 'two'), 'bad.yaml': `${clusters('x')}  oops` });
    await files.start();
    await files.until(() => files.names(cds).length === 2);
    await files.replace('a.yaml', clusters('one', 'three'));
    await files.until(() => files.names(cds).includes('three'));
    expect(files.names(cds)).to.deep.equal(['one', 'three', 'two']);
  });

  it('files of kustomize and lost+found, which are beside resources, are skipped', async () => {
    files = await Harness.make({
      'a.yaml': clusters('one'),
      'kustomization.yaml': 'resources: [a.yaml]',
      'sub/kustomization.yml': 'resources: [a.yaml]',
      'lost+found/b.yaml': 'oops',
    });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.transactions[0]?.complete).to.equal(true);
    expect(files.warnings).to.deep.equal([]);
  });

  it('a file that is too large is not read, whatever it grows to', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one'), 'b.yaml': clusters('two'), 'c.json': '' });
    await files.start();
    await files.until(() => files.names(cds).length === 2);
    // Longer than a text can be.
    await truncate(join(files.path, 'c.json'), 513 << 20);
    await truncate(join(files.path, 'b.yaml'), (16 << 20) + 1);
    const large = (): readonly string[] => files.warnings.filter((text) => text.includes('larger than'));
    await files.until(() => large().length === 2);
    expect(large()[0]).to.match(
      /b\.yaml: the file is larger than the 16777216 bytes that are read of \.yaml, .* write it as \.pb, or divide it/,
    );
    expect(large()[1]).to.match(/c\.json: the file is larger than the 67108864 bytes/);
    await truncate(join(files.path, 'c.json'), 514 << 20);
    await files.write('d.yaml', clusters('three'));
    await files.until(() => files.names(cds).includes('three'));
    expect(files.names(cds), 'its last good content').to.deep.equal(['one', 'three', 'two']);
    expect(large()).to.have.length(2);
  });

  it('a scan of many files that cannot be read looks through what was known once', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    for (let at = 0; at < 20; at++) await symlink('nowhere', join(files.path, `b${at}.yaml`));
    // A file that has just been written is read once more: here none has.
    const later = () => Date.now() + 60_000;
    const look = (previous: Files) => scanFiles(files.path, previous, 8, later, () => {});
    const first = await look(new Map());
    if (!first.ok) throw new Error(first.error);
    expect(first.value.size).to.equal(21);
    let passes = 0;
    class Counting<K, V> extends Map<K, V> {
      override [Symbol.iterator]() {
        passes++;
        return super[Symbol.iterator]();
      }
      override keys() {
        passes++;
        return super.keys();
      }
    }
    const again = await look(new Counting(first.value));
    expect(again.ok && again.value).to.deep.equal(first.value);
    expect(passes).to.be.at.most(2);
  });

  it('§3.9 the types that a file names are found where JSON escapes the slash', async () => {
    const escaped = `{ "resources": [{ "@type": "${cds.replaceAll('/', '\\/')}"`;
    files = await Harness.make({ 'a.json': escaped, 'b.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.transactions[0]?.complete).to.equal(false);
    expect(files.warnings.join()).to.match(/a\.json: until .*: cds$/);
  });

  it('§3.9 a directory that cannot be listed: its types are unknown, or as they were, and what is served is stale', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await symlink('team', join(files.path, 'team'));
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.transactions[0]?.complete).to.equal(false);
    expect(files.upstream.state().staleSince).to.be.a('number');
    await rm(join(files.path, 'team'));
    await files.write('team/b.yaml', clusters('two'));
    await files.until(() => files.names(cds).includes('two'));
    expect(files.upstream.state().staleSince).to.equal(undefined);
    await rename(join(files.path, 'team'), join(files.root, 'away'));
    await symlink('team', join(files.path, 'next'));
    await rename(join(files.path, 'next'), join(files.path, 'team'));
    await files.until(() => files.upstream.state().staleSince !== undefined);
    await files.replace('a.yaml', clusters('three'));
    await files.until(() => files.names(cds).includes('three'));
    expect(files.transactions.at(-1)?.complete).to.equal(true);
  });

  it('an upstream that takes the place of another one has its last good content', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    await files.replace('a.yaml', '');
    await files.until(() => files.warnings.length > 0);
    const next = files.another(files.upstream);
    next.upstream.subscribe(interest(cds, '*'));
    await next.start();
    await next.until(() => next.transactions.length === 1);
    await next.upstream.stop();
    expect(next.names(cds)).to.deep.equal(['one']);
    expect(next.transactions[0]?.complete).to.equal(true);
  });

  it('says of each type that is restored what there is of it, though no file has any: nobody may ask', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one'), 'b.yaml': '' });
    files.restored = [eds];
    await files.start();
    await files.until(() => files.transactions.length === 2);
    expect(files.transactions[1]).to.deep.include({ type: eds, complete: false });
    await rm(join(files.path, 'b.yaml'));
    await files.until(() => files.transactions.length === 4);
    expect(files.transactions[3]).to.deep.include({ type: eds, complete: true, puts: [] });
  });

  it('a scan that finds nothing new joins no files', async () => {
    let asked = 0;
    const counting = {
      ...CLAIMS_EVERYTHING,
      get names() {
        asked++;
        return [];
      },
    };
    files = await Harness.make({ 'a.yaml': clusters('one') }, counting);
    await files.start();
    await files.until(() => files.transactions.length === 1);
    await files.until(() => files.scans > 0);
    const before = { asked, scans: files.scans };
    await files.write('ignored.txt', 'a line of a log');
    await files.replace('a.yaml', clusters('one'));
    await files.until(() => files.scans > before.scans);
    expect(asked).to.equal(before.asked);
  });

  it('one name in two files: the later by path order is refused, with both paths; variants are not', async () => {
    files = await Harness.make({
      'a.yaml': `resources:${variant('shop', 'prod')}`,
      'b.yaml': `resources:${variant('shop', 'prod')}${variant('shop', 'test')}`,
      'c.yaml': clusters('shop'),
    });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.transactions[0]?.puts).to.have.length(3);
    expect(files.upstream.state().lastError).to.match(
      /b\.yaml:2:\d+: .*"shop" with constraints .* is refused: .*a\.yaml has it/,
    );
    await rm(join(files.path, 'a.yaml'));
    await files.until(() => files.upstream.state().lastError === '');
    expect(files.names(cds)).to.have.length(3);
  });

  it('leaves out what it does not claim', async () => {
    files = await Harness.make(
      { 'a.yaml': clusters('shop-a', 'other') },
      { ...CLAIMS_EVERYTHING, names: namePatterns(['shop-*']) },
    );
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.names(cds)).to.deep.equal(['shop-a']);
  });

  it('a missing path is not connected, is reported, and is found when it appears', async () => {
    files = await Harness.make({});
    files.upstream.subscribe(interest(cds, 'one'));
    files.upstream.start();
    await files.until(() => files.upstream.state().down);
    expect(files.upstream.state()).to.include({ connected: false, everConnected: false });
    expect(files.upstream.state().lastError).to.contain(files.path);
    expect(files.transactions, 'unknown is not absent').to.have.length(0);
    await files.write('a.yaml', clusters('one'));
    await files.until(() => files.upstream.state().connected);
    await files.until(() => files.names(cds).length === 1);
    expect(files.upstream.state().lastError).to.equal('');
  });

  it('§8 a path that goes away leaves what it gave, stale', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.names(cds).length === 1);
    await rename(files.path, join(files.root, 'elsewhere'));
    await files.until(() => !files.upstream.state().connected);
    expect(files.names(cds)).to.deep.equal(['one']);
    expect(files.upstream.state()).to.include({ everConnected: true, down: true });
    expect(files.upstream.state().staleSince).to.be.a('number');
    await rename(join(files.root, 'elsewhere'), files.path);
    await files.until(() => files.upstream.state().connected);
    await files.replace('a.yaml', clusters('two'));
    await files.until(() => files.names(cds).includes('two'));
  });

  it('sees new directories, moves into them, and files in them that change in place', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.names(cds).length === 1);
    await files.write('new/deep/b.yaml', clusters('two'));
    await files.until(() => files.names(cds).includes('two'));
    await files.write('new/deep/b.yaml', clusters('three'));
    await files.until(() => files.names(cds).includes('three'));
    await files.replace('new/deep/c.yaml', clusters('four'));
    await files.until(() => files.names(cds).includes('four'));
    await rename(join(files.path, 'new'), join(files.root, 'moved-out'));
    await files.until(() => files.names(cds).length === 1);
  });

  it('follows the links of a ConfigMap when `..data` is swapped', async () => {
    files = await Harness.make({ '..2026_1/a.yaml': clusters('one') });
    await symlink('..2026_1', join(files.path, '..data'));
    await symlink('..data/a.yaml', join(files.path, 'a.yaml'));
    await files.start();
    await files.until(() => files.names(cds).length === 1);
    for (const [round, name] of ['two', 'three'].entries()) {
      const next = `..2026_${round + 2}`;
      await files.write(`${next}/a.yaml`, clusters(name));
      await symlink(next, join(files.path, '..data_tmp'));
      await rename(join(files.path, '..data_tmp'), join(files.path, '..data'));
      await rm(join(files.path, `..2026_${round + 1}`), { recursive: true });
      await files.until(() => files.names(cds).join() === name);
    }
    expect(files.warnings).to.deep.equal([]);
  });

  it('sees a change of what a link points at, and does not follow loops', async () => {
    files = await Harness.make({ 'sub/b.yaml': clusters('two') });
    await mkdir(join(files.root, 'outside'));
    await writeFile(join(files.root, 'outside/real.yaml'), clusters('one'));
    await symlink(join(files.root, 'outside/real.yaml'), join(files.path, 'a.yaml'));
    await symlink(files.path, join(files.path, 'sub/loop'));
    await files.start();
    await files.until(() => files.names(cds).length === 2);
    await writeFile(join(files.root, 'outside/real.yaml'), clusters('three'));
    await files.until(() => files.names(cds).join() === 'three,two');
    expect(files.warnings).to.deep.equal([]);
  });

  it('sees at once that a link above the path, or second on the way to a file, leads elsewhere', async () => {
    files = await Harness.make({});
    for (const [release, name] of ['one', 'two'].entries()) {
      await files.write(`../releases/${release}/resources/a.yaml`, clusters(name));
      await files.write(`../cfg/${release}/b.yaml`, clusters(`linked-${name}`));
    }
    const lead = async (link: string, target: string): Promise<void> => {
      await symlink(target, join(files.root, 'link'));
      await rename(join(files.root, 'link'), join(files.root, link));
    };
    await mkdir(join(files.root, 'app'));
    await lead('app/current', '../releases/0');
    await lead('cfg/current', '0');
    for (const release of [0, 1])
      await symlink('../../../cfg/current/b.yaml', join(files.root, `releases/${release}/resources/b.yaml`));
    const linked = await files.by('app/current/resources').start();
    await linked.until(() => linked.names(cds).join() === 'linked-one,one' && linked.scans > 0);
    await lead('cfg/current', '1');
    await linked.until(() => linked.names(cds).join() === 'linked-two,one');
    await lead('app/current', '../releases/1');
    await linked.until(() => linked.names(cds).join() === 'linked-two,two');
    await linked.upstream.stop();
  });

  it('says where changes are seen late, because a directory cannot be watched', async () => {
    const written = { 'a.yaml': clusters('one'), 'b/b.yaml': clusters('two'), 'c/c.yaml': '' };
    let left = 1;
    const watchDirectory: WatchDirectory = (directory, changed) => {
      if (left-- <= 0) throw new Error('ENOSPC');
      return watch(directory, { persistent: false }, () => changed());
    };
    files = await Harness.make(written, CLAIMS_EVERYTHING, { watchDirectory });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.warnings.join('\n')).to.match(
      /b: changes in it and in 1 directories more are seen within 30 s only/,
    );
    await rm(join(files.path, 'c'), { recursive: true });
    await files.until(() => files.upstream.state().staleSince === undefined);
    expect(files.upstream.state().lastError).to.match(/b: changes in it are seen within 30 s only/);
  });

  it('a resource with a TTL ends once, whoever asks for it again', async () => {
    const mortal = `{ "@type": ${wrapper}, ttl: 0.2s, resource: { "@type": ${cds}, name: mortal } }`;
    files = await Harness.make({ 'a.yaml': `resources: [${mortal}]` });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.names(cds)).to.deep.equal(['mortal']);
    await setTimeout(250);
    files.upstream.subscribe(interest(cds, 'mortal'));
    await files.write('b.yaml', clusters('one'));
    await files.until(() => files.names(cds).includes('one'));
    for (const { puts } of files.transactions.slice(1))
      expect(puts.map(({ name }) => name)).to.not.include('mortal');
    expect(files.names(cds)).to.deep.equal(['one']);
  });

  it('a copy of a directory is refused in one update and 50 lines for each file', async () => {
    const names = Array.from({ length: 60 }, (_, at) => `c${at}`);
    files = await Harness.make({ 'a.yaml': clusters(...names), 'copy/a.yaml': clusters(...names) });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    expect(files.rejected).to.deep.equal([cds]);
    expect(files.warnings).to.have.length(51);
    expect(files.warnings.at(-1)).to.include('10 more problems');
  });

  it('is silent after stop', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    await files.start();
    await files.until(() => files.transactions.length === 1);
    files.upstream.subscribe(interest(cds, 'x'));
    await files.upstream.stop();
    const witness = await files.another().start();
    await files.replace('a.yaml', clusters('two'));
    await witness.until(() => witness.names(cds).join() === 'two');
    await witness.upstream.stop();
    expect(files.transactions).to.have.length(1);
  });

  it('stops although the file system does not answer', async () => {
    files = await Harness.make({ 'a.yaml': clusters('one') });
    const pipe = join(files.root, 'pipe');
    execFileSync('mkfifo', [pipe]);
    // Each takes a thread of Node's file operations until somebody writes.
    const threads = Number(process.env['UV_THREADPOOL_SIZE'] ?? 4);
    const stuck = Array.from({ length: threads }, () => open(pipe, 'r'));
    try {
      files.upstream.start();
      const stopped = files.upstream.stop().then(() => 'stopped');
      expect(await Promise.race([stopped, setTimeout(1000, 'still waits')])).to.equal('stopped');
    } finally {
      const writer = openSync(pipe, 'w');
      for (const reader of await Promise.all(stuck)) await reader.close();
      closeSync(writer);
    }
  });
});
