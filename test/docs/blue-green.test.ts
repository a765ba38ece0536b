import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { run } from '../e2e/support/command.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { reaches } from '../e2e/support/rollout-state.ts';
import { Connections } from '../e2e/support/variant-client.ts';
import { blocksOf } from './page.ts';

const configuration = z.looseObject({ upstreams: z.array(z.looseObject({})) });
const canariesAndOthers = ['a', 'b', 'c'];

describe('blue-green control planes, as the guide says', () => {
  let stack: AsyncDisposableStack;
  beforeEach(() => {
    stack = new AsyncDisposableStack();
  });
  afterEach(() => stack.disposeAsync());

  /** A control plane that serves a cluster with this content. */
  async function controlPlane(content: string): Promise<string> {
    const files = stack.use(new ResourceFiles());
    files.write('cds', new Map([['shop', content]]));
    return stack.use(await RelayProcess.start({ upstreams: [files.upstream] })).xds;
  }

  it('gives green to canaries first, to all after the release, and blue again after a rollback', async () => {
    const planes = { blue: await controlPlane('blue'), green: await controlPlane('green') };
    const [before, after] = blocksOf('docs/how-to/blue-green.md')
      .filter(({ info }) => info === 'yaml relay')
      .map(({ text }) =>
        configuration.parse(
          parse(
            text
              .replace('blue.example.com:18000', planes.blue)
              .replace('green.example.com:18000', planes.green),
          ),
        ),
      );
    if (before === undefined || after === undefined) throw new Error('the guide has two configurations');
    const relay = stack.use(await RelayProcess.start(before));
    const admin = ['--admin', `http://${relay.admin}`];
    const connections = stack.use(new Connections(relay.xds));
    const clients = canariesAndOthers.map((id) => {
      const client = connections.open({ protocol: 'delta', node: { id, cluster: 'web' } });
      client.want('cds', { names: ['*'] });
      return client;
    });
    const holding = (content: string): number =>
      clients.filter((client) => client.holds.get('cds')?.get('shop') === content).length;
    await Promise.all(clients.map((client) => client.gets('cds', ['shop: blue'])));

    relay.configure(after);
    await reaches(relay, 'CANARY');
    const pending = await run('diff', '--pending', '--json', ...admin);
    expect(pending.code, pending.err).to.equal(0);
    await eventually(() => expect(holding('green'), 'the canary').to.equal(1));
    expect(holding('blue'), 'the others').to.equal(2);

    const released = await run('release', '--reason', 'green is good', ...admin);
    expect(released.code, released.err).to.equal(0);
    await Promise.all(clients.map((client) => client.gets('cds', ['shop: green'])));

    const back = await run('rollback', '--to', '1', '--reason', 'green is wrong', ...admin);
    expect(back.code, back.err).to.equal(0);
    await Promise.all(clients.map((client) => client.gets('cds', ['shop: blue'])));
    for (const client of clients) client.close();
  });
});
