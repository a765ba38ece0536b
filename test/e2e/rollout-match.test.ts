import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { Connections } from './support/variant-client.ts';

const status = z.object({ warnings: z.array(z.string()) });
const warning = 'rollout.canary.match[1]: no connected client has env="canary", so it makes nobody a canary';

type Open = (id: string, env: string) => Promise<void>;

const meets: Readonly<Record<string, (relay: RelayProcess, open: Open) => Promise<void>>> = {
  'is there': (_, open) => open('n4', 'canary'),
  polls: async (relay) => {
    const body = JSON.stringify({ node: { id: 'n4', cluster: 'fleet', metadata: { env: 'canary' } } });
    const poll = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
    const url = `http://${relay.rest}/v3/discovery:clusters`;
    // A poll ends with 503 where the worker has not heard of the resources in time.
    await eventually(async () => expect((await fetch(url, poll)).status).to.equal(200));
  },
};

describe('a canary.match that meets nobody', () => {
  const all = cases(2, 0).flatMap((workers) =>
    Object.entries(meets).map(([how, isMet]) => ({ workers, how, isMet })),
  );
  for (const { workers, how, isMet } of all) {
    it(`is a warning in status and on the page, until a client that it meets ${how} (workers: ${workers})`, async () => {
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      await using relay = await RelayProcess.start({
        upstreams: [files.upstream],
        parameters: [{ key: 'env', from: 'node.metadata.env' }],
        rollout: { canary: { match: ['prod', 'canary'].map((value) => ({ key: 'env', value })) } },
        rest: {},
        workers,
      });
      const warnings = async (): Promise<readonly string[]> => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
        return status.parse(JSON.parse(body)).warnings;
      };
      expect(await warnings()).to.deep.equal([]);
      using connections = new Connections(relay.xds, workers + 1);
      const open: Open = async (id, env) => {
        const client = connections.open({ protocol: 'delta', node: { id, metadata: { env } } });
        client.want('cds', { names: ['*'] });
        await client.gets('cds', ['shop: 1']);
      };
      // With workers the warning is about the clients of all of them.
      for (const id of ['n1', 'n2', 'n3']) await open(id, 'prod');
      await eventually(async () => expect(await warnings()).to.deep.equal([warning]));
      expect((await relay.get('/')).body).to.include('no connected client has env=');
      expect((await run('status', '--admin', `http://${relay.admin}`)).out).to.include(warning);
      await isMet(relay, open);
      await eventually(async () => expect(await warnings()).to.deep.equal([]));
    });
  }
});
