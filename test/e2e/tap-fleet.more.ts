import { connect } from 'node:net';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { Connections } from './support/variant-client.ts';

const fleet = 1000;

describe('a tap of 1,000 streams that does not read', function () {
  this.timeout(400_000);

  it('slows nobody down, and hears how many messages it has lost', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], drain_timeout: '100ms' });
    using connections = new Connections(relay.xds, 10);
    const clients = Array.from({ length: fleet }, (_, index) => {
      const client = connections.open({ protocol: 'delta', node: { id: `n${index}`, cluster: 'web' } });
      client.want('cds', { names: ['*'] });
      return client;
    });
    const all = (content: number): Promise<unknown> =>
      eventually(
        () => {
          const late = clients.filter((client) => client.has('cds')[0] !== `shop: ${content}`);
          if (late.length > 0) throw new Error(`${late.length} do not have ${content}`);
        },
        { timeout: 120_000 },
      );
    await all(0);

    const [host = '', port = ''] = relay.admin.split(':');
    let heard = '';
    const socket = connect(Number(port), host).on('data', (bytes: Buffer) => {
      heard += bytes.toString('latin1');
    });
    socket.pause();
    const body = Buffer.concat([Buffer.from([0, 0, 0, 0, 2]), Buffer.from('{}')]);
    const head = `POST /distributary.admin.v1.AdminService/Tap HTTP/1.1\r\nhost: ${relay.admin}\r\ncontent-type: application/connect+json\r\ncontent-length: ${body.length}\r\n\r\n`;
    socket.write(Buffer.concat([Buffer.from(head), body]));
    let content = 0;
    // More than the buffers of two sockets hold.
    while (content < 40) {
      files.write('cds', new Map([['shop', String(++content)]]));
      await all(content);
    }
    socket.resume();
    await eventually(() => {
      if (!/"lost":[1-9]/.test(heard)) throw new Error('it has not heard of a loss');
    });
    socket.destroy();
    expect(await relay.metric('downstream_streams')).to.equal(fleet);
  });
});
