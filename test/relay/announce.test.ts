import { createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { expect } from 'chai';
import { Distributary } from '../../src/distributary.ts';
import { AdminService } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import type { Log } from '../../src/observe/log.ts';
import { configOf } from '../config/support.ts';

const config = configOf(
  'xds: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\ndrain_timeout: 0s\nupstreams: [{ name: a, ads: { endpoints: ["127.0.0.1:1"] } }]\n',
);

async function start(log: Log): Promise<Distributary> {
  const started = await Distributary.start(config, { log, version: '0', processMetrics: false });
  if (!started.ok) throw new Error(started.error);
  return started.value;
}

it('how long the relay has been up does not go by the wall clock, which somebody may set back', async () => {
  const quiet = (): void => {};
  const log: Log = { debug: quiet, info: quiet, warn: quiet, error: quiet, child: () => log };
  const relay = await start(log);
  const admin = relay.listeners.find(({ name }) => name === 'admin')?.address ?? '';
  const { now } = Date;
  try {
    Date.now = () => now() - 3_600_000;
    const transport = createConnectTransport({ baseUrl: `http://${admin}`, httpVersion: '1.1' });
    const { uptimeSeconds } = await createClient(AdminService, transport).status({});
    expect(uptimeSeconds).to.be.within(0, 60);
  } finally {
    Date.now = now;
    await relay.drain();
  }
});

describe('announcing a reload', () => {
  it('a comparison that was refused is logged with its reason, and not as one that took too long', async () => {
    const lines: string[] = [];
    const add = (message: string, fields: object = {}): void =>
      void lines.push(`${message} ${JSON.stringify(fields)}`);
    const log: Log = { debug: add, info: add, warn: add, error: add, child: () => log };
    const relay = await start(log);
    await relay.announce('nonsense: true');
    await relay.drain();
    const said = lines.filter((line) => line.startsWith('what the new configuration changes'));
    expect(said).to.have.length(1);
    expect(said[0]).to.match(/is unknown .*unknown key/);
    const late = relay.reload(config);
    expect(late, 'a reload that the drain overtook').to.deep.equal({
      ok: false,
      error: 'the relay is draining',
    });
  });
});
