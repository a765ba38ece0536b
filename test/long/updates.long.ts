import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { ModelPlane, realBody } from '../e2e/support/model-plane.ts';
import { ClientPool, type RecordingClient } from '../e2e/support/recording-client.ts';
import { RelayProcess, upstream } from '../e2e/support/relay.ts';

const MB = 1 << 20;
const minutes = Number(process.env['LONG_MINUTES'] ?? 60);
const pauseMs = 50;
const clusters = 100;
/** Each so manieth update takes a cluster away and brings one with another name. */
const replaces = 4;

const clusterOf = (name: string, version: number): string =>
  JSON.stringify({
    '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
    name,
    type: 'EDS',
    connect_timeout: `${1 + (version % 100)}s`,
    eds_cluster_config: { eds_config: { ads: {}, resource_api_version: 'V3' } },
  });
const endpointsOf = (name: string, version: number): string =>
  JSON.stringify({
    '@type': 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment',
    cluster_name: name,
    policy: { overprovisioning_factor: 100 + (version % 100) },
  });

/** Subscribes as Envoy does: to all clusters, and to the endpoints of those that are there. */
function follow(client: RecordingClient, names: readonly string[], gone: readonly string[]): void {
  client.said.splice(0);
  if (gone.length > 0) client.unsubscribe('eds', gone);
  const added = names.filter((name) => client.holds.get('eds')?.has(name) !== true);
  if (added.length > 0) client.subscribe('eds', client.protocol === 'delta' ? added : names);
}

describe(`20 updates a second for ${minutes} minutes`, function () {
  this.timeout((minutes + 5) * 60_000);

  it('leave no memory behind, whatever comes and goes', async () => {
    await using plane = await ModelPlane.start(realBody);
    let version = 0;
    let next = clusters;
    const names = Array.from({ length: clusters }, (_, index) => `c${index}`);
    const tell = (): void => {
      plane.set('eds', new Map(names.map((name) => [name, endpointsOf(name, version)])));
      plane.set(
        'cds',
        new Map(names.map((name, index) => [name, clusterOf(name, version % 7 === index % 7 ? version : 0)])),
      );
    };
    tell();
    await using stack = new AsyncDisposableStack();
    const relays: RelayProcess[] = [];
    const clients: RecordingClient[] = [];
    for (const protocol of ['SOTW', 'DELTA'] as const) {
      const relay = await RelayProcess.startMeasurable({
        upstreams: [upstream(plane.address, protocol)],
        cache: { idle_ttl: '10s' },
      });
      stack.use(relay);
      relays.push(relay);
      const pool = stack.use(new ClientPool(relay.xds));
      for (const speaks of ['sotw', 'delta', 'delta'] as const) {
        const client = pool.open(speaks, `n-${speaks}`);
        client.subscribe('cds', ['*']);
        clients.push(client);
      }
    }
    await sleep(1000);
    for (const client of clients) follow(client, names, []);
    const used: number[][] = relays.map(() => []);
    const begin = performance.now();
    const end = begin + minutes * 60_000;
    let looked = 0;
    while (performance.now() < end) {
      version++;
      const gone = version % replaces === 0 ? names.splice(version % clusters, 1) : [];
      if (gone.length > 0) names.push(`c${next++}`);
      tell();
      await sleep(Math.max(1, begin + version * pauseMs - performance.now()));
      if (gone.length > 0) for (const client of clients) follow(client, names, gone);
      if (performance.now() - looked < 30_000) continue;
      looked = performance.now();
      for (const [index, relay] of relays.entries()) {
        const { used: now, rss } = await relay.memory();
        used[index]?.push(now / MB);
        console.log(
          `${version} updates, relay ${index}: ${(now / MB).toFixed(1)} MB used, RSS ${(rss / MB).toFixed(0)}`,
        );
      }
      for (const client of clients) expect(client.status, client.status?.details).to.equal(undefined);
    }
    for (const figures of used) {
      const quarter = Math.floor(figures.length / 4);
      const least = (from: number): number =>
        Math.min(...figures.slice(from * quarter, (from + 1) * quarter));
      expect(least(3) - least(1), figures.map((figure) => figure.toFixed(1)).join(' ')).to.be.below(2);
    }
  });
});
