import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';

const central = (plane: ModelPlane): object => ({ name: 'central', ads: { endpoints: [plane.address] } });

describe('the log of a relay', () => {
  for (const workers of cases(0, 1)) {
    it(`says which relay it is; at the level debug, in text, what clients do (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start(
        { upstreams: [central(plane)], workers },
        { arguments: ['--log-format', 'text', '--log-level', 'debug'] },
      );
      expect(relay.logged[0]).to.match(
        /Z INFO {2}the relay starts version=\S+ node_id=relay configuration=\S+ /,
      );
      {
        using pool = new ClientPool(relay.xds, 1);
        const client = pool.open('delta', 'envoy-1');
        client.subscribe('cds');
        await eventually(() => expect(client.of('cds')).not.to.be.empty);
      }
      await eventually(() => {
        const log = relay.logged.join('\n');
        for (const line of [
          /DEBUG a session begins .*upstream=central|DEBUG a session begins upstream=central/,
          /DEBUG a stream opens .*peer=127\.0\.0\.1:\d+ .*service=ads/,
          /DEBUG a client subscribes .*peer=127\.0\.0\.1:\d+ node=envoy-1 type=cds/,
          /DEBUG a stream ends .*peer=127\.0\.0\.1:\d+ node=envoy-1/,
        ]) {
          expect(log).to.match(line);
        }
      });
    });

    it(`one node at the level debug for a time, by the command log; a rejection with the peer (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({ upstreams: [central(plane)], workers });
      const asked = ['--node', 'chased', '--level', 'debug', '--for', '1h'];
      const { out } = await run('log', ...asked, '--admin', `http://${relay.admin}`);
      expect(out).to.match(/^log level info, with these exceptions\nNODE +LEVEL +UNTIL\nchased +debug +20/);
      using pool = new ClientPool(relay.xds, 1);
      const about = (node: string): readonly string[] =>
        relay.log.filter((line) => line['node'] === node).map(({ message }) => message);
      // A worker hears of it over IPC: the next stream may be earlier.
      await eventually(async () => {
        using other = pool.open('delta', 'other');
        other.subscribe('cds');
        using client = pool.open('delta', 'chased');
        client.subscribe('cds');
        await eventually(() => expect(client.of('cds')).not.to.be.empty);
        expect(about('chased')).to.include('a client subscribes');
      });
      expect(about('other')).to.be.empty;
      expect((await relay.says(/log level/))[0]).to.include({
        for_node: 'chased',
        level: 'info',
        log_level: 'debug',
        seconds: 3600,
      });
      const picky = pool.open('delta', 'picky');
      picky.rejects = () => 'no';
      picky.subscribe('cds');
      expect((await relay.says(/^a client rejected cds$/))[0]?.['peer']).to.match(/^127\.0\.0\.1:\d+$/);
    });

    it(`one node at the level debug, while it is refused before it is known (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      await using relay = await RelayProcess.start({
        upstreams: [central(plane)],
        workers,
        xds: { address: '127.0.0.1:0', authorization: { rules: [{ allow: false }] } },
      });
      const asked = ['--node', 'chased', '--level', 'debug', '--for', '1h'];
      await run('log', ...asked, '--admin', `http://${relay.admin}`);
      using pool = new ClientPool(relay.xds, 1);
      await eventually(async () => {
        await pool.open('delta', 'chased').ends();
        const line = relay.log.find(({ message }) => message === 'a stream is refused');
        expect(line).to.include({ node: null, reason: 'denied' });
        expect(line?.['peer']).to.match(/^127\.0\.0\.1:\d+$/);
      });
    });
  }
});
