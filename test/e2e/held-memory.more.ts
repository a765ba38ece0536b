import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { manyResources, ResourceFiles } from './support/files.ts';
import { type Memory, RelayProcess } from './support/relay.ts';
import { type NodeInit, XdsClient } from './support/xds-client.ts';

const KB = 1024;
const MB = KB * KB;

describe('what a stream holds', function () {
  this.timeout(180_000);
  const streams = 160;
  const batch = 20;

  /** The least of a few looks: requests that are still on their way are not kept, and what is kept is there each time. */
  async function keptBy(relay: RelayProcess): Promise<Memory> {
    let least = await relay.memory();
    for (let looks = 1; looks < 4; looks++) {
      await sleep(250);
      const now = await relay.memory();
      if (now.used < least.used) least = now;
    }
    return least;
  }

  /** Of the streams, what each of the second half costs: the first ones pay for what all share. */
  async function perStream(
    relay: RelayProcess,
    open: (index: number) => { readonly client: XdsClient; readonly ready: Promise<unknown> },
  ): Promise<Memory> {
    await using stack = new AsyncDisposableStack();
    // Some at a time: what requests take while they arrive is not what is kept.
    const openSome = async (count: number): Promise<void> => {
      for (let opened = 0; opened < count; opened += batch) {
        const some = Array.from({ length: Math.min(batch, count - opened) }, (_, index) => open(index));
        for (const { client } of some) stack.use(client);
        for (const { ready } of some) await ready;
      }
    };
    await openSome(streams / 2);
    const before = await keptBy(relay);
    await openSome(streams / 2);
    expect(await relay.metric('downstream_streams')).to.equal(streams);
    const after = await keptBy(relay);
    return {
      rss: (after.rss - before.rss) / (streams / 2),
      used: (after.used - before.used) / (streams / 2),
    };
  }

  it('a stream costs the same whether it holds 10 resources or 1,000', async () => {
    const costs = new Map<number, Memory>();
    for (const count of [10, 1000]) {
      using files = new ResourceFiles();
      const resources = manyResources(count);
      files.write('cds', resources);
      files.write('eds', resources);
      await using relay = await RelayProcess.startMeasurable({
        upstreams: [files.upstream],
        limits: { max_subscriptions_per_stream: 20_000, first_request_timeout: '120s' },
      });
      const names = [...resources.keys()];
      const cost = await perStream(relay, (index) => {
        const client = new XdsClient(relay.xds, index % 2 === 0 ? 'sotw' : 'delta');
        const [type, selected] = index % 4 < 2 ? ['cds', []] : ['eds', names];
        client.subscribe(type, selected);
        const ready = client.gets(type).then((all) => expect(all.resources).to.equal(count));
        return { client, ready };
      });
      costs.set(count, cost);
    }
    const [few, many] = [costs.get(10), costs.get(1000)];
    if (few === undefined || many === undefined) throw new Error('not measured');
    const told = JSON.stringify(Object.fromEntries(costs));
    // The names alone would be 50 KB, a table of them some MB.
    expect(many.used - few.used, told).to.be.lessThan(16 * KB);
    expect(many.rss - few.rss, told).to.be.lessThan(300 * KB); // what the system has not got back yet is in it
    expect(few.used, told).to.be.lessThan(64 * KB);
  });

  it("§3.1 Envoy's 61 KB node in every request is not kept", async () => {
    const costs: Memory[] = [];
    for (const extensions of [0, 600]) {
      using files = new ResourceFiles();
      files.write('cds', new Map([['shop', '0']]));
      await using relay = await RelayProcess.startMeasurable({
        upstreams: [files.upstream],
        limits: { first_request_timeout: '120s' },
      });
      const node = envoyNode(extensions);
      const cost = await perStream(relay, (index) => {
        const protocol = index % 2 === 0 ? 'sotw' : 'delta';
        const client = new XdsClient(relay.xds, protocol, { node, nodeAlways: true });
        for (const type of ['lds', 'eds', 'cds']) client.subscribe(type, ['shop']);
        return { client, ready: client.gets('cds') };
      });
      costs.push(cost);
    }
    const [small, whole] = costs;
    if (small === undefined || whole === undefined) throw new Error('not measured');
    const told = JSON.stringify({ small, whole });
    expect(whole.used - small.used, told).to.be.lessThan(16 * KB);
    expect(whole.rss - small.rss, told).to.be.lessThan(300 * KB);
  });

  it('what clients leave behind is given back', async () => {
    using files = new ResourceFiles();
    files.write('cds', manyResources(500));
    await using relay = await RelayProcess.startMeasurable({
      upstreams: [files.upstream],
      cache: { idle_ttl: '0s' },
    });
    const open = () => {
      const client = new XdsClient(relay.xds, 'delta');
      client.subscribe('cds');
      client.subscribe('eds', [...manyResources(200).keys()]);
      return { client, ready: client.gets('cds') };
    };
    await perStream(relay, open);
    const first = await relay.memory();
    await perStream(relay, open);
    await eventually(async () => expect(await relay.metric('downstream_streams')).to.equal(0));
    await eventually(async () => expect((await relay.memory()).used - first.used).to.be.lessThan(2 * MB));
  });
});

/** As Envoy is by default: nearly all of it are its extensions. */
function envoyNode(extensions: number): NodeInit {
  return {
    id: 'envoy-1',
    cluster: 'fleet',
    userAgentName: 'envoy',
    extensions: Array.from({ length: extensions }, (_, index) => ({
      name: `envoy.filters.http.some_filter_${index}`,
      category: 'envoy.filters.http',
      typeUrls: [`envoy.extensions.filters.http.some_filter_${index}.v3`],
    })),
  };
}
