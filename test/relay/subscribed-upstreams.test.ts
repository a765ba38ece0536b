import { expect } from 'chai';
import { parseConfig } from '../../src/config/load.ts';
import { SubscribedUpstreams } from '../../src/load-reports.ts';
import { InMemoryRelay } from '../support/in-memory-relay.ts';

const config = parseConfig(
  'upstreams: [{ name: a, types: [LDS], ads: { endpoints: ["cp:1"] } }, { name: b, ads: { endpoints: ["cp:2"] } }]',
  'configuration',
  {},
);

describe('of which upstreams a node has subscriptions', () => {
  it('is looked up the more rarely, the more streams there are, however many nodes are unknown', () => {
    if (!config.ok) throw new Error(JSON.stringify(config.error));
    let looked = 0;
    const streams = () => {
      looked++;
      return [].values();
    };
    const upstreams = new SubscribedUpstreams({
      config: config.value,
      relay: { server: { size: 20_000, values: streams } },
    });
    const start = performance.now();
    for (let count = 0; performance.now() - start < 300; count++) upstreams.here(`node-${count}`);
    // A busy machine may have taken longer.
    expect(looked).to.be.within(1, 1 + Math.floor((performance.now() - start) / 500));
  });

  it('§5c.2 is what it had last, for a node that returns and has not subscribed again', () => {
    if (!config.ok) throw new Error(JSON.stringify(config.error));
    const lab = new InMemoryRelay();
    const client = lab.delta();
    client.send('cds', { resourceNamesSubscribe: ['a'] });
    const { nodeId = '' } = [...lab.relay.server.values()][0]?.client ?? {};
    const ask = (upstreams: SubscribedUpstreams) => [...upstreams.of(nodeId, 'stream')];
    const core = { config: config.value, relay: lab.relay };
    const upstreams = new SubscribedUpstreams(core);
    expect(ask(upstreams)).to.deep.equal(['b']);
    client.disconnect();
    const other = new SubscribedUpstreams(core);
    expect(ask(other), 'another process').to.deep.equal([]);
    // Beyond what is remembered of a look.
    Object.defineProperty(upstreams, 'here', { value: () => new Set() });
    expect(ask(upstreams)).to.deep.equal(['b']);
    core.config = { ...config.value, upstreams: config.value.upstreams.filter(({ name }) => name === 'a') };
    expect(ask(upstreams), 'b has gone').to.deep.equal(['a']);
  });
});
