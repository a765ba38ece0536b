import { connect } from 'node:http2';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { csdsOf } from './support/relay-state.ts';

const answer = z.looseObject({ versionInfo: z.string() });
const status = z.object({ polling_clients: z.number(), rejecting_clients: z.number() });

for (const workers of cases(2, 0)) {
  describe(`REST clients in clients, explain, status and on the page, workers ${workers}`, () => {
    let files: ResourceFiles;
    let relay: RelayProcess;

    before(async () => {
      files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      relay = await RelayProcess.start({ upstreams: [files.upstream], rest: {}, workers });
    });

    after(async () => {
      await relay?.[Symbol.asyncDispose]();
      files?.[Symbol.dispose]();
    });

    const ask = (...argv: readonly string[]) => run(...argv, '--admin', `http://${relay.admin}`);
    const row = async (node: string) => (await relay.clients()).find((one) => one.node.id === node);

    /** One connection: with workers, all polls of a client are one worker's. */
    function client(id: string) {
      const session = connect(`http://${relay.rest}`);
      return {
        // A poll ends with 503 where the worker has not heard of the resources in time.
        poll: (request: object = {}): Promise<string> =>
          eventually(async () => {
            const stream = session.request({ ':method': 'POST', ':path': '/v3/discovery:clusters' });
            stream.end(JSON.stringify({ node: { id, cluster: 'fleet' }, ...request }));
            const body = await text(stream);
            return body === '' ? '' : answer.parse(JSON.parse(body)).versionInfo;
          }),
        [Symbol.dispose]: () => session.destroy(),
      };
    }

    it('node, last poll, version and state: the version of the next poll is its ACK, error_detail its NACK', async () => {
      using edge = client('rest-edge');
      const version = await edge.poll();
      expect(await row('rest-edge')).to.deep.include({ transport: 'rest' });
      const [first] = (await row('rest-edge'))?.types ?? [];
      expect(first).to.include({ type: 'cds', state: 'STALE', version });
      expect(Date.now() - Date.parse(first?.last_poll ?? '')).to.be.within(0, 60_000);

      expect(await edge.poll({ version_info: version })).to.equal('');
      const { out } = await ask('clients', '--node', 'rest-*', '-o', 'wide');
      const [head = '', line = '', , count] = out.split('\n');
      expect(head).to.match(/^CLIENT .* LAST POLL +STATE +TYPES +ANSWERED WITH/);
      expect(line).to.match(/ rest-edge +fleet .* rest +\d+ s ago +SYNCED +cds +cds \S+@/);
      expect(line).to.include(`cds ${version}`);
      expect(count).to.equal('1 client');

      await edge.poll({ version_info: 'older', error_detail: { code: 3, message: 'no such filter' } });
      const rejected = await ask('clients', '--state', 'ERROR');
      expect(rejected.out).to.match(/ rest-edge .* ERROR +cds ERROR .* no such filter/);
      // The list of problems may be a second old.
      await eventually(async () => {
        const said = await ask('status');
        expect(said.out).to.match(/clients: 0 streams, 1 polling/);
        expect(said.out).to.match(/^critical: 1 client with .* rejects cds .*\n {2}no such filter/m);
      });
      await edge.poll({ version_info: version });
      await eventually(async () => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
        expect(status.parse(JSON.parse(body))).to.deep.equal({ polling_clients: 1, rejecting_clients: 0 });
      });
    });

    it('explain, get and the detail of the page say what it has', async () => {
      using edge = client('explained');
      const version = await edge.poll();
      await edge.poll({ version_info: version });
      const id = (await row('explained'))?.id ?? '';
      const argv = ['--type', 'cds', '--name', 'shop', '--client', id];
      const explained = await ask('explain', ...argv);
      expect(explained.code, explained.err).to.equal(0);
      expect(explained.out).to.include(`last sent version ${version}: SYNCED (acknowledged)`);
      expect(explained.out).to.match(/It has the variant /);
      expect((await ask('get', ...argv)).code).to.equal(0);
      using other = client('other');
      await other.poll();
      const differs = await ask('diff', '--client', id, '--client', (await row('other'))?.id ?? '');
      expect(differs).to.include({ code: 0, out: 'no differences' });

      files.write('cds', new Map([['shop', '2']]));
      await eventually(async () => {
        expect((await ask('explain', ...argv)).out).to.match(/its last response is out of date/);
      });
      const detail = await relay.rpc('distributary.admin.v1.AdminService/GetClient', { id, limit: 10 });
      expect(JSON.parse(detail.body)).to.deep.include({ node_id: 'explained', transport: 'rest', total: 1 });
    });

    it('CSDS: what it asks for and nobody has was not sent', async () => {
      using edge = client('asks-for-more');
      const version = await edge.poll({ resource_names: ['shop', 'none'] });
      await edge.poll({ resource_names: ['shop', 'none'], version_info: version });
      expect((await csdsOf(relay, 'asks-for-more')).toSorted()).to.deep.equal(['NOT_SENT', 'SYNCED']);
    });
  });
}
