import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { when } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { temporaryDirectory } from './support/paths.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const parameters = z.record(z.string(), z.string());
const report = z.object({
  ok: z.boolean(),
  warnings: z.array(z.object({ path: z.string(), message: z.string() })),
  changes: z.object({
    needs_restart: z.array(z.string()),
    upstreams: z.array(z.object({ name: z.string(), change: z.string() })),
    sessions: z.array(
      z.object({ upstream: z.string(), parameters, before: z.boolean(), after: z.boolean() }),
    ),
    streams: z.number(),
    changed: z.number(),
    losing: z.number(),
    reconnecting: z.number(),
    unread_rules: z.array(z.object({ key: z.string(), from: z.string(), streams: z.number() })),
    clients: z.array(
      z.object({
        node: z.string(),
        before: parameters,
        after: parameters,
        reconnects: z.boolean(),
        lost: z.array(z.object({ type: z.string(), name: z.string(), why: z.string() })),
      }),
    ),
  }),
});

for (const workers of cases(0, 2)) {
  describe(`validate --against, workers: ${workers}`, () => {
    const stack = new AsyncDisposableStack();
    let files: ResourceFiles;
    let directory: string;
    let relay: RelayProcess;
    let clients: readonly { readonly env: string; readonly client: VariantClient }[];

    before(async () => {
      files = stack.use(new ResourceFiles());
      directory = stack.use(temporaryDirectory()).path;
      writeVariants(files, 'eds', [
        ['shop', 'prod', when({ env: 'prod' })],
        ['shop', 'test', when({ env: 'test' })],
        ['shop', 'dev', when({ env: 'dev' })],
        ['prod-only', 'prod', when({ env: 'prod' })],
      ]);
      relay = stack.use(await RelayProcess.start(config()));
      const connections = stack.use(new Connections(relay.xds));
      clients = [
        { id: 'one', env: 'prod' },
        { id: 'two', env: 'prod' },
        { id: 'three', env: 'test' },
      ].map(({ id, env }) => {
        const client = connections.open({ protocol: 'delta', node: { id, metadata: { env } } });
        client.want('eds', { names: ['shop', 'prod-only'] });
        client.want('cds', { names: ['c'] });
        return { env, client };
      });
      await everybodyHasItsOwn();
    });
    after(() => stack.disposeAsync());

    /** A control plane that is never there: its sessions are counted all the same. */
    const central = { name: 'central', types: ['cds'], ads: { endpoints: ['127.0.0.1:1'] } };
    const config = (more: object = {}): RelayConfig => ({
      upstreams: [central, files.upstream],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      drain_timeout: '100ms',
      workers,
      ...more,
    });

    async function everybodyHasItsOwn(): Promise<void> {
      for (const { env, client } of clients) {
        await client.gets('eds', env === 'prod' ? ['prod-only: prod', 'shop: prod'] : ['shop: test']);
      }
    }

    const compare = (next: RelayConfig, ...flags: readonly string[]) => {
      const path = join(directory, 'next.json');
      // With workers the fixture chooses the port (test/e2e/support/relay.ts).
      const address = workers === 2 ? relay.xds : '127.0.0.1:0';
      const listeners = { xds: { address }, admin: { address: '127.0.0.1:0' } };
      writeFileSync(
        path,
        JSON.stringify({ node: { id: 'relay', cluster: 'relays' }, ...listeners, ...next }),
      );
      return run('validate', '--config', path, '--against', `http://${relay.admin}`, ...flags);
    };
    const reportOf = async (next: RelayConfig) => {
      const { code, out } = await compare(next, '--json');
      expect(code, out).to.equal(0);
      return report.parse(JSON.parse(out));
    };
    const changesOf = async (next: RelayConfig) => (await reportOf(next)).changes;
    /** What the last reload has changed, as the log has it. */
    const reloaded = () =>
      relay.log.findLast(({ message }) => message === 'what the new configuration changes');

    it('the same configuration changes nothing', async () => {
      const changes = await changesOf(config());
      expect(changes).to.deep.include({
        ...{ needs_restart: [], upstreams: [], streams: 3, changed: 0, losing: 0, reconnecting: 0 },
        clients: [],
      });
      expect(changes.sessions).to.have.length(2);
      expect(changes.sessions.every(({ before, after }) => before && after)).to.equal(true);
    });

    if (workers === 0) {
      it('says who loses what by authorization and upstreams', async () => {
        const authorization = { rules: [{ names: ['shop'], allow: true }] };
        const denied = await changesOf(config({ xds: { address: '127.0.0.1:0', authorization } }));
        expect([denied.changed, denied.losing]).to.deep.equal([0, 2]);
        expect(denied.clients[0]?.lost).to.deep.equal([{ type: 'eds', name: 'prod-only', why: 'DENIED' }]);

        const alone = await changesOf(config({ upstreams: [central] }));
        expect(alone.upstreams).to.deep.equal([{ name: 'files', change: 'REMOVED' }]);
        expect(alone.losing).to.equal(3);
        expect(alone.clients[0]?.lost[0]?.why).to.equal('UNCLAIMED');
      });

      it('a bad file exits 2 and asks nobody; a relay that does not answer 1', async () => {
        expect((await compare(config({ nonsense: true }))).code).to.equal(2);
        const path = join(directory, 'next.json');
        writeFileSync(path, JSON.stringify(config()));
        const asked = ['validate', '--config', path, '--against', 'http://127.0.0.1:1'];
        const { code, err } = await run(...asked);
        expect(code).to.equal(1);
        expect(err).to.include("cannot reach the relay's admin listener at http://127.0.0.1:1");
        const ran = await run(...asked, '--json');
        expect(ran.code).to.equal(1);
        const found = report.omit({ changes: true }).parse(JSON.parse(ran.out.slice(ran.err.length)));
        expect(found.ok, 'what is known of the file').to.equal(true);
      });
    }

    it('says which sessions, parameters and resources change, and so does the log of a reload', async () => {
      const rule = { key: 'env', from: 'node.metadata.env', pattern: '^(test)$', default: 'test' };
      const next = config({ parameters: [rule], limits: { max_request_bytes: 1_000_000 } });
      const changes = await changesOf(next);
      expect(changes).to.deep.include({ streams: 3, changed: 2, losing: 2, reconnecting: 0 });
      expect(changes.needs_restart).to.deep.equal(['limits.max_request_bytes']);
      expect(changes.sessions.filter(({ before, after }) => before !== after)).to.deep.equal([
        { upstream: 'central', parameters: { env: 'prod' }, before: true, after: false },
      ]);
      const lost = [{ type: 'eds', name: 'prod-only', why: 'NO_VARIANT' }];
      const moved = { before: { env: 'prod' }, after: { env: 'test' }, reconnects: false, lost };
      expect(changes.clients.toSorted((a, b) => (a.node < b.node ? -1 : 1))).to.deep.equal([
        { node: 'one', ...moved },
        { node: 'two', ...moved },
      ]);

      const { out } = await compare(next, '-o', 'wide');
      expect(out).to.match(
        /^Streams: 3; with other parameters: 2; that lose resources: 2; that may lose resources, unknown until they reconnect: 0\.$/m,
      );
      expect(out).to.match(/^closed +central +env=prod$/m);
      expect(out).to.match(/^\S+ +one +env=prod +env=test +1$/m);
      expect(out).to.match(/ eds +prod-only +no variant matches its new parameters$/m);
      // It was only asked: nobody has lost anything.
      expect((await changesOf(config())).losing).to.equal(0);

      relay.configure(next);
      await relay.says(/^configuration reloaded$/);
      await eventually(() =>
        expect(reloaded()).to.deep.include({ streams: 3, streams_changed: 2, sessions_closed: 1 }),
      );
      for (const { client } of clients) await client.gets('eds', ['shop: test']);

      relay.configure(config());
      await everybodyHasItsOwn();
    });

    it('says that sessions are opened again where a limit of the upstreams changes', async () => {
      const next = config({ limits: { max_response_bytes: 1_000_000 } });
      const { upstreams } = await changesOf(next);
      expect(upstreams).to.deep.equal([{ name: 'central', change: 'CHANGED' }]);
    });

    it('what files have for the new parameters is not lost, though no client has asked for it', async () => {
      const rule = { key: 'env', from: 'node.metadata.env', pattern: '^(test)$', default: 'dev' };
      const { losing, clients: changed } = await changesOf(config({ parameters: [rule] }));
      expect(losing).to.equal(2);
      const lost = [{ type: 'eds', name: 'prod-only', why: 'NO_VARIANT' }];
      expect(changed.map((one) => one.lost)).to.deep.equal([lost, lost]);
    });

    it('a template of parameters in "to" is no reference to the environment of the relay', async () => {
      const to = 'node.id=sidecar~$${env}~$${env}.svc';
      const { ok } = await reportOf(config({ parameters: [{ key: 'env', from: 'node.metadata.env', to }] }));
      expect(ok).to.equal(true);
    });

    // Last: the reload ends the streams.
    it('does not say that clients lose nothing when the new rules read what was not kept', async () => {
      const rule = { key: 'env', from: 'node.metadata.environment' };
      const next = config({ parameters: [rule] });
      const { ok, changes, warnings } = await reportOf(next);
      expect(ok).to.equal(true);
      expect(changes).to.deep.include({
        streams: 3,
        reconnecting: 3,
        unread_rules: [{ ...rule, streams: 3 }],
      });
      const message =
        'the rule for "env" reads node.metadata.environment, which the relay has not kept of 3 streams, because its rules do not read it: what these lose is unknown until they reconnect';
      expect(warnings).to.deep.include({ path: 'parameters[0].from', message });

      const { code, out } = await compare(next);
      expect(code).to.equal(0);
      expect(out).to.include(`warning: parameters[0].from: ${message}`);
      expect(out).to.match(/that may lose resources, unknown until they reconnect: 3\.$/m);
      expect(out).to.match(/^\S+ +one +env=prod +\(reconnects\) +unknown$/m);
      expect(out).to.not.include('No session is opened or closed');

      relay.configure(next);
      await eventually(() => {
        const said = reloaded();
        expect(said).to.deep.include({
          level: 'warn',
          streams_reconnecting: 3,
          unread_rules: ['env reads node.metadata.environment: 3 streams'],
        });
        expect(said).to.not.have.any.keys('streams_changed', 'streams_losing', 'lost');
      });
    });
  });
}
