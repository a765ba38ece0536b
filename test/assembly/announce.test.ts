import { expect } from 'chai';
import { Distributary } from '../../src/assembly/distributary.ts';
import type { Log } from '../../src/observe/log.ts';
import { configOf } from '../config/support.ts';

describe('announcing a reload', () => {
  it('a comparison that was refused is logged with its reason, and not as one that took too long', async () => {
    const lines: string[] = [];
    const add = (message: string, fields: object = {}): void =>
      void lines.push(`${message} ${JSON.stringify(fields)}`);
    const log: Log = { debug: add, info: add, warn: add, error: add, child: () => log };
    const config = configOf(
      'xds: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\ndrain_timeout: 0s\nupstreams: [{ name: a, ads: { endpoints: ["127.0.0.1:1"] } }]\n',
    );
    const started = await Distributary.start(config, { log, version: '0', processMetrics: false });
    if (!started.ok) throw new Error(started.error);
    await started.value.announce('nonsense: true');
    await started.value.drain();
    const said = lines.filter((line) => line.startsWith('what the new configuration changes'));
    expect(said).to.have.length(1);
    expect(said[0]).to.match(/is unknown .*unknown key/);
    const late = started.value.reload(config);
    expect(late, 'a reload that the drain overtook').to.deep.equal({
      ok: false,
      error: 'the relay is draining',
    });
  });
});
