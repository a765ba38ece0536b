import { join } from 'node:path';
import { expect } from 'chai';
import { when } from '../support/lab.ts';
import { Envoy, type Transport } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { always, eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { temporaryDirectory } from './support/paths.ts';
import { RelayProcess } from './support/relay.ts';
import { listener } from './support/resources.ts';
import { need } from './support/skip.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';
import { type VariantOf, writeVariants } from './support/variant-files.ts';

const byEnv = [{ key: 'env', from: 'node.metadata.env' }];
const inEnv = (env: string) => ({ id: `client-${env}`, cluster: 'fleet', metadata: { env } });

/** Constraints that are not in canonical order: they must arrive as they are. */
const newer = when({ version: 'v2', env: 'prod' });
const files: readonly VariantOf[] = [
  ['shop', 'prod', when({ env: 'prod' })],
  ['shop', 'test', when({ env: 'test' })],
  ['office', 'all', undefined],
];

interface Tier {
  readonly id: string;
  /** Where it gets its resources: the relay above, or files. */
  readonly above: RelayProcess | object;
  readonly changes?: object;
  /** Path of the socket that it listens on. */
  readonly unix?: string;
}

function relay({ id, above, changes = {}, unix }: Tier): Promise<RelayProcess> {
  const endpoint = above instanceof RelayProcess ? above.xds : undefined;
  const ads = {
    endpoints: [endpoint],
    variants: 'NATIVE',
    backoff: { initial: '100ms', max: '1s' },
    ...changes,
  };
  return RelayProcess.start({
    node: { id, cluster: 'relays' },
    ...(unix === undefined ? {} : { xds: { address: `unix:${unix}` } }),
    upstreams: [endpoint === undefined ? above : { name: 'above', ads }],
    parameters: byEnv,
    drain_timeout: '200ms',
  });
}

describe('relays behind relays', function () {
  this.timeout(100_000);

  for (let n=0;n<8;n++) it('Envoys below the second tier get the variants of their environment', async function () {
    const envoy = await need(this, envoyBinary());
    using directory = temporaryDirectory();
    using resources = new ResourceFiles();
    const route = (env: string): string => `
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    resource_name:
      name: web-routes
      dynamic_parameter_constraints: { constraint: { key: env, value: ${env} } }
    resource:
      "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
      name: web-routes
      virtual_hosts:
        - name: all
          domains: ["*"]
          routes: [{ match: { prefix: / }, direct_response: { status: 200, body: { inline_string: ${env} } } }]`;
    resources.writeText('routes.yaml', `resources:${route('prod')}${route('test')}\n`);
    resources.writeText('listeners.json', JSON.stringify({ resources: [listener('web', 'web-routes')] }));
    await using top = await relay({
      id: 'top',
      above: resources.upstream,
      unix: join(directory.path, 'top'),
    });
    await using bottom = await relay({ id: 'bottom', above: top });
    const start = (transport: Transport, env: string) =>
      Envoy.start(envoy, { xds: bottom.xds, transport, id: env, metadata: { env } });
    await using prod = await start('ads-sotw', 'prod');
    await using test = await start('ads-delta', 'test');
    const t0=Date.now(); await prod.answers('web', '/', 'prod', 40000); const t1=Date.now();
    await test.answers('web', '/', 'test', 40000); console.log(t1-t0, Date.now()-t1); if (Date.now()-t0>6000) { console.log((await prod.admin('/stats?filter=update_|init_fetch|control_plane|rejected|warm')).body, (await test.admin('/stats?filter=update_|init_fetch|control_plane|rejected|warm')).body, bottom.output, top.output, prod.output, test.output, (await bottom.rpc('distributary.admin.v1.AdminService/ListClients', {})).body, (await top.rpc('distributary.admin.v1.AdminService/ListClients', {})).body); }
  });

});
