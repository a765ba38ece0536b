import { expect } from 'chai';
import { z } from 'zod';
import { run } from './support/command.ts';
import { Envoy } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess, relayCommand } from './support/relay.ts';
import { customListener, routes } from './support/resources.ts';
import { need } from './support/skip.ts';

const statusOf = z.object({ nacks: z.array(z.object({ clients: z.number(), error: z.string() })) });
const head = 'Error adding/updating listener(s) web: …: Proto constraint validation failed';
const tail = 'value must be inside range [200, 600))';

const { '@type': _, ...inline } = routes('inline', {});
/** Envoy takes no status above 599. */
const wrong = { match: { prefix: '/' }, direct_response: { status: 1000 } };
const listener = customListener('web', {
  route_config: { ...inline, virtual_hosts: [{ name: 'all', domains: ['*'], routes: [wrong] }] },
});

describe('what a real Envoy says of a listener that it rejects', () => {
  it('is shown with its head and its tail wherever errors are shown, and whole as JSON; two Envoys are one rejection', async function () {
    await need(this, relayCommand());
    const binary = await need(this, envoyBinary());
    using files = new ResourceFiles();
    files.writeText('web.json', JSON.stringify({ resources: [listener] }));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
    const xds = { xds: relay.xds, transport: 'ads-delta' } as const;
    await using _first = await Envoy.start(binary, { ...xds, id: 'first' });
    await using _second = await Envoy.start(binary, { ...xds, id: 'second' });
    const admin = ['--admin', `http://${relay.admin}`];
    const text = async (...argv: readonly string[]): Promise<string> => (await run(...argv, ...admin)).out;

    await eventually(async () => {
      const { nacks } = statusOf.parse(JSON.parse(await text('status', '--json')));
      expect(nacks.map(({ clients }) => clients)).to.deep.equal([2]);
      expect(nacks[0]?.error)
        .to.match(/\nroute_config \{\n/)
        .and.to.satisfy((whole: string) => whole.endsWith(tail));
    });
    // Whoever asks within a second gets the same list of problems.
    await eventually(async () => expect(await text('status')).to.include('2 clients with'));
    const listed = z
      .object({ clients: z.array(z.object({ id: z.string() })) })
      .parse(JSON.parse(await text('clients', '--json')));
    const client = listed.clients[0]?.id ?? '';
    const { body: page } = await relay.get('/');
    const shown = {
      status: await text('status'),
      clients: await text('clients'),
      explain: await text('explain', '--type', 'lds', '--name', 'web', '--client', client),
      get: (await text('get', '--type', 'lds', '--name', 'web', '--client', client)).split('\n', 1).join(),
      wait: await text('wait', '--timeout', '100ms'),
      page: page.replaceAll('&#39;', "'"),
    };
    for (const [where, said] of Object.entries(shown)) {
      expect(said, where).to.include(head).and.to.include(tail);
      expect(said, where).to.not.match(/virtual_hosts|goo\.gle/);
    }
    expect(relay.output).to.include(tail);
  });
});
