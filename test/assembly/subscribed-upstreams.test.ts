import { expect } from 'chai';
import { SubscribedUpstreams } from '../../src/assembly/load-reports.ts';
import { parseConfig } from '../../src/config/load.ts';
import { typeUrl } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { Selection } from '../../src/model/selection.ts';
import { WILDCARD } from '../../src/model/transaction.ts';

const config = parseConfig(
  'upstreams: [{ name: a, types: [LDS], ads: { endpoints: ["cp:1"] } }, { name: b, ads: { endpoints: ["cp:2"] } }]',
  'configuration',
  {},
);

type Served = ConstructorParameters<typeof SubscribedUpstreams>[0];

function subscribedUpstreams(
  streams: Served['relay']['server']['streams'],
  changed: () => void,
  size = 1,
): SubscribedUpstreams {
  if (!config.ok) throw new Error(JSON.stringify(config.error));
  return new SubscribedUpstreams({ config: config.value, relay: { server: { size, streams } } }, changed);
}

/** Of a client that subscribes to all clusters, which are of the second upstream. */
function streamOf(nodeId: string) {
  const url = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
  const all = { selector: WILDCARD, spelling: '*', locator: false, parameters: NO_PARAMETERS };
  const selection = Selection.of([{ ...all, locatorParameters: undefined }]);
  return { client: { nodeId }, types: [{ info: { url }, selection }] };
}

describe('of which upstreams a node has subscriptions', () => {
  it('is looked up the more rarely, the more streams there are, however many nodes are unknown', () => {
    let looked = 0;
    const streams = () => {
      looked++;
      return [].values();
    };
    const upstreams = subscribedUpstreams(streams, () => undefined, 20_000);
    const start = performance.now();
    for (let count = 0; performance.now() - start < 300; count++) upstreams.here(`node-${count}`);
    // A busy machine may have taken longer.
    expect(looked).to.be.within(1, 1 + Math.floor((performance.now() - start) / 500));
  });

  describe('between two looks', () => {
    const open: ReturnType<typeof streamOf>[] = [];

    function started() {
      open.length = 0;
      let changed = Promise.withResolvers<void>();
      const upstreams = subscribedUpstreams(
        () => open.values(),
        () => {
          changed.resolve();
          changed = Promise.withResolvers();
        },
      );
      upstreams.here('another');
      return { upstreams, changed: () => changed.promise };
    }

    it('is not known of a client that came after the first: it is told when they were looked at again', async () => {
      const { upstreams, changed } = started();
      open.push(streamOf('new'));
      const since = performance.now();
      expect(upstreams.of('new', '1', since)).to.equal(undefined);
      expect(upstreams.of('nothing', '2', since)).to.equal(undefined);
      await changed();
      expect(upstreams.of('new', '1', since)).to.deep.equal(new Set(['b']));
      expect(upstreams.of('nothing', '2', since)).to.deep.equal(new Set());
    });

    it('is not answered to another process before the second', async () => {
      const { upstreams } = started();
      open.push(streamOf('new'));
      await upstreams.looked();
      expect(upstreams.here('new')).to.deep.equal(new Set(['b']));
    });
  });
});
