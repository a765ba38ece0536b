import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { Process, signalTo } from './support/process.ts';
import { distributary, RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';

const line = z.looseObject({
  event: z.string(),
  client: z.string().default(''),
  node: z.string().default(''),
  type: z.string().default(''),
  kind: z.string().default(''),
  names: z.array(z.string()).default([]),
  removed: z.array(z.string()).default([]),
  error: z.string().default(''),
  lost: z.number().default(0),
});
const waited = z.object({
  accepted: z.boolean(),
  clients: z.number(),
  missing: z.number(),
  missing_clients: z.array(
    z.object({ node: z.string(), type: z.string(), state: z.string(), why: z.string() }),
  ),
});

const linesOf = (text: readonly string[]): readonly z.infer<typeof line>[] =>
  text.filter((one) => one.startsWith('{')).map((one) => line.parse(JSON.parse(one)));

for (const workers of cases(0, 2)) {
  describe(`wait and tap, workers: ${workers}`, () => {
    let files: ResourceFiles;
    let relay: RelayProcess;
    let connections: Connections;
    const admin = (): readonly string[] => ['--admin', `http://${relay.admin}`];
    /** It has shown something. */
    const tappingAll = async (): Promise<Process> => {
      const tapping = new Process(distributary('tap', ...admin()));
      let content = 1;
      await eventually(() => {
        files.write('cds', new Map([['shop', String(++content)]]));
        expect(linesOf(tapping.lines)).not.to.deep.equal([]);
      });
      return tapping;
    };

    beforeEach(async () => {
      files = new ResourceFiles();
      files.write('cds', new Map([['shop', '1']]));
      relay = await RelayProcess.start({ upstreams: [files.upstream], workers, drain_timeout: '100ms' });
      connections = new Connections(relay.xds);
    });

    afterEach(async () => {
      connections[Symbol.dispose]();
      await relay.stop();
      files[Symbol.dispose]();
    });

    /** Its process; 0: it does not listen. */
    async function firstWorker(): Promise<number> {
      const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
      const { workers: all } = z
        .object({ workers: z.array(z.object({ pid: z.number().default(0) })) })
        .parse(JSON.parse(body));
      return all[0]?.pid ?? 0;
    }

    async function open(id: string, accepts: (said: readonly string[]) => boolean = () => true) {
      const client = connections.open({ protocol: 'delta', node: { id, cluster: 'web' }, accepts });
      client.want('cds', { names: ['*'] });
      await client.gets('cds', ['shop: 1']);
      return client;
    }

    it('wait exits 0 once every client has accepted what upstream has', async () => {
      const clients: VariantClient[] = [await open('a'), await open('b')];
      files.write('cds', new Map([['shop', '2']]));
      await Promise.all(clients.map((client) => client.gets('cds', ['shop: 2'])));
      const all = await run('wait', '--timeout', '20s', '--json', ...admin());
      expect(all.code, all.out).to.equal(0);
      expect(waited.parse(JSON.parse(all.out))).to.include({ accepted: true, clients: 2, missing: 0 });
      const last = await run('wait', '--revision', '2', '--timeout', '20s', ...admin());
      expect(last.code, last.out).to.equal(0);
      const never = await run('wait', '--revision', '99', ...admin());
      expect(never.code).to.equal(1);
      expect(never.err).to.match(/there is no revision 99/);
      const one = await run('wait', '--type', 'cds', '--name', 'shop', '--timeout', '20s', ...admin());
      expect(one.out).to.equal('accepted by all: 2 streams subscribe');
    });

    it('wait exits 1 at the timeout with who has not, and why', async () => {
      await open('good');
      const bad = await open('bad', (said) => !said.some((one) => one.includes('poison')));
      files.write('cds', new Map([['shop', 'poison']]));
      await eventually(async () => {
        const rejects = (await clientsOf(relay)).filter(({ types }) =>
          types.some((one) => one.last_nack !== ''),
        );
        if (rejects.length === 0) throw new Error('nothing is rejected yet');
      });
      // The other one accepts it a moment later.
      const failed = await eventually(async () => {
        const answered = await run('wait', '--timeout', '300ms', '--type', 'cds', ...admin());
        expect(answered.err).to.match(/^not accepted after 300ms by 1 of 2 streams:$/m);
        return answered;
      });
      expect(failed.code, failed.out).to.equal(1);
      expect(failed.err).to.match(/^\S+ +bad +cds +shop +ERROR +rejected: not to my taste$/m);
      const json = await run('wait', '--timeout', '300ms', '--name', 'shop', '--json', ...admin());
      expect(json.code).to.equal(1);
      expect(json.err).to.include('not to my taste');

      bad.close();
      const without = await run('wait', '--timeout', '20s', ...admin());
      expect(without.code, without.out).to.equal(0);
      expect(without.out).to.equal('accepted by all: 1 stream subscribes');
    });

    it('wait counts what is frozen as names, not as streams', async () => {
      const [one, two] = [await open('one'), await open('two')];
      await run('freeze', '--reason', 'holidays', ...admin());
      files.write('cds', new Map([['shop', '2']]));
      await eventually(async () => {
        const failed = await run('wait', '--timeout', '300ms', ...admin());
        expect(failed.err).to.match(/^not accepted after 300ms: the relay holds back 1 name:$/m);
        expect(failed.err).to.match(
          /^ +cds +shop +HELD +changes are frozen, and upstream has a newer version$/m,
        );
        expect(failed.code).to.equal(1);
      });
      await run('unfreeze', '--reason', 'over', ...admin());
      await Promise.all([one, two].map((client) => client.gets('cds', ['shop: 2'])));
    });

    if (workers > 0)
      it('tap of all clients ends with an error when a worker ends: it would show those of the others alone', async () => {
        await open('tapped');
        const tapping = await tappingAll();
        signalTo(await firstWorker(), 'SIGKILL');
        expect(await tapping.exited).to.equal(1);
        expect(tapping.lines.join('\n')).to.include('a worker has exited: tap again to see all clients');

        // As long as it starts, its clients would be missing for good: it is killed whenever it is there again.
        const seen = new AbortController();
        let later = 0;
        const killing = (async () => {
          while (!seen.signal.aborted) {
            const pid = await firstWorker();
            if (pid > 0) signalTo(pid, 'SIGKILL');
            files.write('cds', new Map([['shop', `later ${++later}`]]));
            await sleep(20);
          }
        })();
        await eventually(async () => {
          const again = await run('tap', '--limit', '1', ...admin());
          expect(again.err).to.include('a worker does not listen yet: tap again to see all clients');
          expect(again.code).to.equal(1);
        });
        seen.abort();
        await killing;
      });

    it('tap shows messages to and from clients, of one client or one type, as JSON lines', async () => {
      const client = await open('tapped');
      const other = await open('other');
      const id = (await clientsOf(relay)).find(({ node }) => node.id === 'tapped')?.id ?? '';
      const tapping = new Process(distributary('tap', '--client', id, ...admin()));
      const limited = new Process(distributary('tap', '--type', 'cds', '--limit', '4', ...admin()));
      let content = 1;
      // The tap is open once it shows something.
      await eventually(async () => {
        files.write('cds', new Map([['shop', String(++content)]]));
        await Promise.all([client, other].map((one) => one.gets('cds', [`shop: ${content}`])));
        // It may have opened between a response and its ACK.
        const taken = linesOf(tapping.lines);
        const sent = taken.findIndex(({ event }) => event === 'SENT');
        const isHeard = taken.slice(sent).some(({ event, kind }) => event === 'HEARD' && kind === 'ack');
        if (sent < 0 || !isHeard || limited.lines.length < 4) throw new Error('nothing is shown');
      });
      expect(await limited.exited).to.equal(0);
      expect(linesOf(limited.lines)).to.have.length(4);
      client.close();
      expect(await tapping.exited).to.equal(0);
      const shown = linesOf(tapping.lines);
      for (const { client: of, node } of shown) expect([of, node]).to.deep.equal([id, 'tapped']);
      expect(shown.find(({ event }) => event === 'SENT')).to.deep.include({ type: 'cds', names: ['shop'] });
      expect(shown.at(-1)?.event).to.equal('ENDED');
    });

    it('tap exits 0 when the relay drains', async () => {
      await open('tapped');
      const tapping = await tappingAll();
      await relay.stop();
      expect(await tapping.exited, tapping.output).to.equal(0);
      expect(linesOf(tapping.lines).at(-1)?.event).to.equal('ENDED');
    });

    it('says what is wrong with what it was asked', async () => {
      const refusals: readonly (readonly [readonly string[], number, RegExp])[] = [
        [['tap', '--client', 'nobody'], 1, /there is no client nobody/],
        [['tap', '--type', 'nothing'], 2, /unknown type "nothing": expected /],
        [['tap', '--limit', '0'], 2, /--limit: expected a whole number from 1 to 4294967295, got "0"/],
        [['tap', '--limit', '5000000000'], 2, /--limit: .* from 1 to 4294967295, got "5000000000"/],
        [['wait', '--timeout', 'soon'], 2, /"soon" is not a duration/],
        [['wait', '--timeout', '2h'], 2, /at most 1h/],
        [['wait', '--revision', '-1'], 2, /revision/],
        [['wait', '--nonsense'], 2, /Usage: distributary wait/],
      ];
      for (const [argv, code, why] of refusals) {
        const refused = await run(...argv, ...admin());
        expect(refused.code, argv.join(' ')).to.equal(code);
        expect(refused.err).to.match(why);
      }
    });
  });
}
