import { setInterval } from 'node:timers';
import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { contentOf, typeOf } from '../upstream/ads/responses.ts';
import { run } from './support/command.ts';
import { always } from './support/eventually.ts';
import { RelayProcess } from './support/relay.ts';
import { reaches, rolloutOf } from './support/rollout-state.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';

const cds = typeOf('cds');
const prefix = 'xdstp://a/envoy.config.cluster.v3.Cluster/web/';
const glob = `${prefix}*`;

/** A relay before a control plane that speaks TP2 and says `items` first. */
async function start(
  stack: AsyncDisposableStack,
  workers: number,
  items: readonly string[],
): Promise<{ readonly relay: RelayProcess; readonly says: (...items: readonly string[]) => void }> {
  const plane = new ControlPlane();
  let version = 0;
  plane.answer = (stream, { typeUrl, responseNonce }) => {
    if (responseNonce === '' && typeUrl === cds) stream.send(cds, String(++version), ...items);
  };
  await plane.listen();
  stack.defer(() => plane.kill());
  const ads = { endpoints: [`127.0.0.1:${plane.port}`], variants: 'NATIVE' };
  const relay = stack.use(
    await RelayProcess.start({
      upstreams: [{ name: 'central', ads }],
      rollout: { canary: { percent: 0.01 }, bake: '500ms' },
      workers,
    }),
  );
  const says = (...said: readonly string[]): void => {
    for (const stream of plane.openStreams) stream.send(cds, String(++version), ...said);
  };
  return { relay, says };
}

for (const workers of cases(2, 0)) {
  describe(`a rollout of what TP2 has (workers: ${workers})`, () => {
    it('variants of a glob: one client of those that see the variant goes first, and the others of the glob hear nothing', async () => {
      await using stack = new AsyncDisposableStack();
      const { relay, says } = await start(stack, workers, [
        `${prefix}x{env=prod}:1`,
        `${prefix}x{env=test}:1`,
        `${prefix}old{env=prod}:1`,
      ]);
      const connections = stack.use(new Connections(relay.xds, workers + 1));
      let rejects = false;
      /** Who is told something, in that order. */
      const told: { readonly id: string; readonly at: number }[] = [];
      const open = (id: string): VariantClient => {
        const client = connections.open({
          protocol: 'delta',
          node: { id, cluster: 'web' },
          accepts: () => {
            told.push({ id, at: performance.now() });
            return !rejects;
          },
          content: (any) => contentOf(any?.value),
        });
        client.want('cds', { locators: { [glob]: { env: id.startsWith('prod') ? 'prod' : 'test' } } });
        return client;
      };
      const ids = ['prod-1', 'prod-2', 'test-1', 'test-2', 'test-3'];
      const clients = new Map(ids.map((id) => [id, open(id)]));
      const prod = [...clients].filter(([id]) => id.startsWith('prod')).map(([, client]) => client);
      const test = [...clients].filter(([id]) => id.startsWith('test')).map(([, client]) => client);
      const named = (name: string, env: string, content: string): string =>
        `${prefix}${name} {env == "${env}"}: ${content}`;
      const before = {
        prod: [named('old', 'prod', '1'), named('x', 'prod', '1')],
        test: [named('x', 'test', '1')],
      };
      for (const client of prod) await client.gets('cds', before.prod);
      for (const client of test) await client.gets('cds', before.test);
      for (const client of clients.values()) client.heard();

      told.length = 0;
      says(`${prefix}x{env=prod}:2`);
      for (const client of prod)
        await client.gets('cds', [named('old', 'prod', '1'), named('x', 'prod', '2')]);
      await reaches(relay, 'IDLE');
      for (const client of test) expect(client.heard()).to.deep.equal([]);
      expect(told.map(({ id }) => id)).to.have.members(['prod-1', 'prod-2']);
      const [first, next] = told;
      expect((next?.at ?? 0) - (first?.at ?? 0), 'one of them alone, for the bake').to.be.above(400);

      rejects = true;
      // What prod has already: only canaries of test have it too.
      says(`${prefix}x{env=test}:2`);
      const held = await reaches(relay, 'HELD');
      rejects = false;
      const sets = ['--param', 'env=test', '--against', 'env=prod', '--name', `${prefix}x`];
      const diff = await run('diff', ...sets, '--admin', `http://${relay.admin}`);
      expect(diff.out).to.match(/changed +cds/);
      expect(held.canaries).to.include({ total: 1, rejected: 1 });
      // What nobody has had yet comes through, and does not free what is held.
      says(`${prefix}new{env=test}:1`);
      const late = open('test-4');
      const released = [named('new', 'test', '1'), named('x', 'test', '1')];
      for (const client of [...test, late]) await client.gets('cds', released);
      expect((await rolloutOf(relay)).state).to.equal('HELD');
      says(`${prefix}x{env=test}:3`, `-${prefix}new{env=test}`);
      for (const client of [...test, late]) await client.gets('cds', [named('x', 'test', '3')]);
      await reaches(relay, 'IDLE');
      expect(prod.map((client) => client.has('cds').length)).to.deep.equal([2, 2]);
    });

    it('a TTL: heartbeats are for both cohorts while a change is held, and their end takes it from both', async () => {
      await using stack = new AsyncDisposableStack();
      const name = `${prefix}x`;
      const { relay, says } = await start(stack, workers, [`${name}:1@a~3000`]);
      let current = 'a';
      const beats = setInterval(() => says(`${name}@${current}~3000`), 300);
      stack.defer(() => clearInterval(beats));
      const connections = stack.use(new Connections(relay.xds, workers + 1));
      let rejects = false;
      const clients = new Map(
        ['n1', 'n2'].map((id) => {
          const client = connections.open({
            protocol: 'delta',
            node: { id, cluster: 'web' },
            accepts: () => !rejects,
            content: (any) => contentOf(any?.value),
          });
          client.want('cds', { names: [name] });
          return [id, client];
        }),
      );
      for (const client of clients.values()) await client.gets('cds', [`${name}: 1`]);
      current = 'b';
      rejects = true;
      says(`${name}:bad@b~3000`);
      await reaches(relay, 'HELD');
      rejects = false;
      // Longer than the TTL.
      await always(() => {
        for (const client of clients.values()) expect(client.has('cds')).to.deep.equal([`${name}: 1`]);
      }, 4_000);
      clearInterval(beats);
      for (const client of clients.values()) await client.gets('cds', []);
      await reaches(relay, 'IDLE');
    });
  });
}
