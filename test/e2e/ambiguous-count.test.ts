import { join } from 'node:path';
import { expect } from 'chai';
import { ControlPlane, controlPlaneBinary } from './support/controlplane.ts';
import { eventually } from './support/eventually.ts';
import { temporaryDirectory } from './support/paths.ts';
import { type RelayConfig, RelayProcess, relayCommand, upstream } from './support/relay.ts';
import { statusOf } from './support/relay-state.ts';
import { endpoints } from './support/resources.ts';
import { need } from './support/skip.ts';
import { Connections } from './support/variant-client.ts';

const environments = ['prod', 'test'];
const inEnv = (env: string) => ({ id: `client-${env}`, cluster: 'fleet', metadata: { env } });

async function ambiguousIn(relay: RelayProcess): Promise<readonly string[]> {
  const { types } = await statusOf(relay);
  return types.filter(({ ambiguous }) => ambiguous > 0).map(({ type, ambiguous }) => `${type} ${ambiguous}`);
}

describe('the count of ambiguous matches', () => {
  let binary: string;

  before(async function () {
    await need(this, relayCommand());
    binary = await need(this, controlPlaneBinary());
  });

  it('SOTW upstream: a variant for each environment is not ambiguous, after swaps and a restart neither', async () => {
    using directory = temporaryDirectory();
    await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
    const config: RelayConfig = {
      drain_timeout: '100ms',
      upstreams: [upstream(plane.address, 'SOTW')],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      cache: { persistence: { path: join(directory.path, 'kept') } },
    };
    const names = ['one', 'two', 'three'];
    {
      await using relay = await RelayProcess.start(config);
      using connections = new Connections(relay.xds, 2);
      const clients = environments.map((env) => connections.open({ protocol: 'sotw', node: inEnv(env) }));
      for (const [swap, name] of names.entries()) {
        for (const env of environments) await plane.set([endpoints(name, 1000 + swap)], { key: env });
        for (const client of clients) client.want('eds', { names: [name] });
        for (const client of clients)
          await eventually(() => expect(client.has('eds')).to.have.length(swap + 1));
      }
      expect(await relay.metric('cache_variants', 'type="eds"')).to.equal(6);
      expect(await ambiguousIn(relay)).to.deep.equal([]);
    }
    await using relay = await RelayProcess.start(config);
    expect(await relay.metric('cache_variants', 'type="eds"')).to.be.above(0);
    expect(await ambiguousIn(relay)).to.deep.equal([]);
  });
});
