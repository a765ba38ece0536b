import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { issueCertificate } from '../support/certificates.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { PemFiles } from './support/pem-files.ts';
import { Process } from './support/process.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { distributary, type RelayConfig, RelayProcess } from './support/relay.ts';

const listing = z.object({ clients: z.array(z.object({ id: z.string() })) });

const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'] });
const operator = issueCertificate({ name: 'alice', issuer: authority, uris: ['spiffe://corp/alice'] });

const reason = ['--reason', 'a test'];

interface Step {
  readonly argv: readonly string[];
  /** What upstream says before it. */
  readonly says?: string;
  /** It must be seen before the command, by `diff --pending`. */
  readonly waits?: boolean;
  readonly code?: number;
  readonly prints: RegExp;
  /** What every client has in the end. */
  readonly leads?: string;
}

/** From everybody with content 1, at revision 1, in mode MANUAL. */
const steps: readonly Step[] = [
  { argv: ['history'], prints: /^1 +\S+Z +cds +RELEASED/m },
  { argv: ['wait', '--timeout', '30s'], prints: /^accepted by all: 2 streams subscribe$/ },
  { argv: ['diff', '--pending'], says: '2', waits: true, prints: /^changed +cds +a$/m },
  { argv: ['wait', '--timeout', '100ms'], code: 1, prints: /a +HELD/ },
  { argv: ['discard', ...reason], prints: /^discarded: 1 name$/, leads: '1' },
  { argv: ['history'], prints: / DISCARDED .* ~a \(a test\)$/m },
  { argv: ['status'], prints: /^discarded: 1 name \(cds\) of central: a \(a test\)$/m },
  { argv: ['release', ...reason], says: '3', waits: true, prints: /^released: 1 name$/, leads: '3' },
  { argv: ['freeze', ...reason], prints: /^frozen$/ },
  {
    argv: ['freeze', ...reason],
    code: 1,
    prints: /everything is already frozen, since .*Z, by \S+.* \(a test\)/,
  },
  { argv: ['unfreeze', ...reason], prints: /^unfrozen; 0 names pending$/ },
  {
    argv: ['rollback', '--to', '1', ...reason],
    prints: /^rolled back to revision 1: 1 resource changed/,
    leads: '1',
  },
];

const changing = ['discard', 'freeze', 'release', 'rollback', 'unfreeze'];

for (const workers of cases(0, 2)) {
  describe(`commands about changes, over TLS (workers: ${workers})`, function () {
    this.timeout(180_000);
    let pem: PemFiles;
    let plane: ModelPlane;
    let stack: AsyncDisposableStack;
    let relay: RelayProcess;
    let clients: readonly RecordingClient[];
    let identity: readonly string[];

    const config = (admin: object = {}): RelayConfig => ({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      rollout: { canary: { percent: 0.01 }, mode: 'MANUAL', bake: '200ms' },
      workers,
      admin: {
        tls: { ...pem.identity('admin', server), ca: pem.bundle('ca.crt', [authority]) },
        ...admin,
      },
    });

    before(async () => {
      stack = new AsyncDisposableStack();
      pem = stack.use(new PemFiles());
      const { certificate, private_key } = pem.identity('alice', operator);
      identity = ['--cert', certificate, '--key', private_key];
      plane = stack.use(await ModelPlane.start());
      plane.set('cds', { a: '1' });
      relay = stack.use(await RelayProcess.start(config()));
      const pool = stack.use(new ClientPool(relay.xds, workers + 1));
      clients = ['n1', 'n2'].map((id) => pool.open('delta', id));
      for (const client of clients) client.subscribe('cds');
      for (const client of clients) await client.gets('cds', { a: '1' });
    });
    after(() => stack.disposeAsync());

    const anonymous = (...argv: readonly string[]) =>
      run(...argv, '--admin', `https://${relay.admin}`, '--ca', pem.path('ca.crt'));
    const ask = (...argv: readonly string[]) => anonymous(...argv, ...identity);
    const all = async (content: string): Promise<void> => {
      for (const client of clients) await client.gets('cds', { a: content });
    };
    const audit = () =>
      relay.log
        .filter(({ message }) => /operator has|was refused/.test(message))
        .map(({ what, reason: why, who }) => [what, why, String(who).split(' ')[0]]);

    it('do what they say, for who shows a certificate', async () => {
      for (const { argv, says, waits = false, code = 0, prints, leads } of steps) {
        if (says !== undefined) plane.set('cds', { a: says });
        if (waits) {
          await eventually(async () => expect((await ask('diff', '--pending')).out).to.match(/^changed/m));
        }
        const done = await ask(...argv);
        expect([argv.join(' '), done.code], done.out).to.deep.equal([argv.join(' '), code]);
        expect(done.out, argv.join(' ')).to.match(prints);
        if (leads !== undefined) await all(leads);
      }
      const expected = steps.map(({ argv: [verb] }) => verb).filter((verb) => changing.includes(verb ?? ''));
      await eventually(() =>
        expect(audit()).to.deep.equal(expected.map((verb) => [verb, 'a test', 'spiffe://corp/alice'])),
      );
      await ask('unfreeze', ...reason);
    });

    it('tap shows what passes', async () => {
      for (const client of clients) client.subscribe('eds', ['a']);
      const argv = ['tap', '--type', 'eds', '--limit', '1', '--admin', `https://${relay.admin}`];
      const tap = new Process(distributary(...argv, '--ca', pem.path('ca.crt'), ...identity));
      // Nothing says when it is open: changes go on until it has heard of one.
      let content = 1;
      while ((await Promise.race([tap.exited, sleep(100)])) === undefined) {
        plane.set('eds', { a: String(content++) });
      }
      expect(await tap.exited, tap.output).to.equal(0);
      expect(JSON.parse(tap.lines[0] ?? '')).to.include({ type: 'eds' });
    });

    it('and all others that ask: each in words, and with --json as JSON', async () => {
      const { clients: listed } = listing.parse(JSON.parse((await ask('clients', '--json')).out));
      const id = listed[0]?.id ?? '';
      const resource = ['--type', 'cds', '--name', 'a'];
      for (const argv of [
        ['status'],
        ['clients', '--state', 'synced'],
        ['resources', '--type', 'cds'],
        ['get', ...resource],
        ['get', ...resource, '--client', id],
        ['explain', ...resource, '--client', id],
        ['history', '--type', 'cds'],
        ['diff', '--client', id, '--client', id],
        ['wait', '--type', 'eds', '--timeout', '20s'],
        ['log', '--level', 'debug', '--for', '1s'],
        ['freeze', '--type', 'sds', ...reason],
        ['unfreeze', '--type', 'sds', ...reason],
      ]) {
        const words = await ask(...argv);
        const json = await ask(...argv, '--json');
        expect([words.code, words.err], argv.join(' ')).to.deep.equal([0, '']);
        // What an operator has just done cannot be done again: that is no JSON, but a reason on stderr.
        if (changing.includes(argv[0] ?? '')) expect(json.code, argv.join(' ')).to.equal(1);
        else expect(JSON.parse(json.out), argv.join(' ')).to.be.an('object');
      }
    });

    it('are refused without a certificate, and with admin.read_only: nothing changes', async () => {
      const to = ['--to', '1'];
      for (const verb of changing) {
        const refused = await anonymous(verb, ...(verb === 'rollback' ? to : []), ...reason);
        expect([verb, refused.code]).to.deep.equal([verb, 1]);
        expect(refused.err, verb).to.match(/certificate/);
      }
      plane.set('cds', { a: '7' });
      await eventually(async () => expect((await ask('diff', '--pending')).out).to.match(/^changed/m));
      const before = await eventually(() => {
        const all = clients.map((client) => client.has('cds'));
        expect(all, 'the canary has it').to.deep.include({ a: '7' });
        return all;
      });
      relay.configure(config({ read_only: true }));
      await eventually(async () =>
        expect((await ask('freeze', '--type', 'sds', ...reason)).err).to.match(/read_only/),
      );
      for (const verb of changing) {
        const refused = await ask(verb, ...(verb === 'rollback' ? to : []), ...reason);
        expect([verb, refused.code]).to.deep.equal([verb, 1]);
        expect(refused.err, verb).to.match(/changes something.*admin\.read_only/);
      }
      await eventually(() => {
        const attempts = relay.log.filter(
          ({ message }) => message === 'an RPC that changes something was refused',
        );
        const attempted = new Set(
          attempts.map(({ who, what }) => `${String(what)} by ${String(who).split(' ')[0]}`),
        );
        expect([...attempted].toSorted()).to.deep.equal(
          changing.map((verb) => `${verb} by spiffe://corp/alice`),
        );
      });
      for (const verb of ['history', 'status']) expect((await ask(verb)).code, verb).to.equal(0);
      expect((await ask('diff', '--pending')).out).to.match(/^changed/m);
      expect((await ask('wait', '--timeout', '100ms')).err).to.match(/a +HELD/);
      expect((await ask('status')).out).to.match(/^rollout: CANARY/m);
      expect(clients.map((client) => client.has('cds'))).to.deep.equal(before);
    });
  });
}
