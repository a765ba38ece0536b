import { expect } from 'chai';
import { parseConfig } from '../../src/config/load.ts';
import { SubscribedUpstreams } from '../../src/load-reports.ts';

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
});
