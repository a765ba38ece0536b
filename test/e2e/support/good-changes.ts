import { ControlPlane } from './controlplane.ts';
import { canariesOf, EnvoyFleet } from './envoy-fleet.ts';
import { RelayProcess } from './relay.ts';
import {
  cluster,
  configSource,
  customListener,
  endpoints,
  type Resource,
  reporting,
  routes,
} from './resources.ts';
import { reaches, rolloutOf } from './rollout-state.ts';
import type { Setting } from './setting.ts';
import type { Backends } from './sites.ts';
import { Webhook } from './webhook.ts';

/** Two of them have three of the Envoys, and two have two. */
const environments = ['a', 'b', 'c', 'd'];
/**
 * By the hash of the node id, so that one of each environment is in the first wave, and one more in the second where there
 * are three. So there is always another one to compare with: a machine that is busy for a second is busy for all.
 */
const environmentOf = (id: string): string =>
  environments[[...canariesOf(10)].indexOf(id) % environments.length] ?? '';
const patience = 120_000;

/** Names of its own but for the listener, so that environments are judged apart. */
function siteOf({ one, two }: Backends, env: string, count: number): readonly Resource[] {
  const [paths, others] = [`web-routes-${env}`, `extra-routes-${env}`];
  const [shop, office] = [`shop-${env}`, `office-${env}`];
  const rds = (name: string): object => ({
    rds: { route_config_name: name, config_source: configSource('ads') },
  });
  // All have new routes. Clusters and listeners are everybody's (`*`): such a change is judged with those of the others.
  const timeout = `${1 + Math.floor((count + 4) / 8)}s`;
  const longest = `${10 + Math.floor(count / 8)}s`;
  return [
    customListener('web', rds(paths)),
    customListener(`extra-${env}`, { ...rds(others), request_timeout: longest }),
    routes(paths, { '/office': office, [`/good-${count}-`]: office, '/': shop }),
    routes(others, { '/': shop }),
    { ...cluster(shop), connect_timeout: timeout },
    cluster(office),
    endpoints(shop, one.port),
    // One comes, and goes again.
    endpoints(office, two.port, ...(count % 2 === 1 ? [two.port] : [])),
  ];
}

export interface GoodChangesResult {
  /** By result (`rollouts_total`): what did not become of a good change. */
  readonly bad: Readonly<Record<string, number>>;
  /** So many were judged: those that came together are one. */
  readonly released: number;
  readonly requests: number;
  readonly failures: readonly string[];
  readonly seconds: number;
}

/**
 * So many good changes to ten Envoys under constant requests, judged by waves, traffic, a check and every guard, with
 * two workers. Each environment has its next change as soon as everybody there has the one before.
 */
export async function makeGoodChanges(setting: Setting, changes: number): Promise<GoodChangesResult> {
  await using stack = new AsyncDisposableStack();
  const plane = stack.use(
    await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot', key: 'env' }),
  );
  for (const env of environments) await plane.set(siteOf(setting, env, 0), { key: env });
  using webhook = await Webhook.start();
  const relay = stack.use(
    await RelayProcess.start({
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address], variants: 'PER_PARAMETERS' } }],
      rollout: {
        waves: [{ percent: 0.01 }, { percent: 50 }],
        bake: '1s',
        max_wait: '5m',
        traffic: { interval: '300ms', min_requests: 20 },
        checks: [{ name: 'smoke', interval: '300ms', webhook: { url: webhook.url } }],
        guard: { max_lost_endpoints_percent: 60, max_growth_percent: 100, max_changed_percent: 60 },
      },
      workers: 2,
    }),
  );
  const fleet = stack.use(
    await EnvoyFleet.start(setting, relay.xds, {
      bootstrap: reporting,
      rate: 30,
      keepAlive: false,
      metadataOf: (id) => ({ env: environmentOf(id) }),
    }),
  );
  const before = performance.now();
  await Promise.all(
    environments.map(async (env) => {
      const own = [...fleet.envoys].filter(([id]) => environmentOf(id) === env);
      for (let count = 1; count * environments.length <= changes; count++) {
        await plane.set(siteOf(setting, env, count), { key: env });
        for (const [, envoy] of own) {
          await envoy.answers('web', `/good-${count}-`, 'two', patience).catch(async (cause: unknown) => {
            throw new Error(`${env}, change ${count}: ${JSON.stringify(await rolloutOf(relay))}`, { cause });
          });
        }
      }
    }),
  );
  await reaches(relay, 'IDLE');
  const bad: Record<string, number> = {};
  for (const result of ['held', 'discarded', 'timeout', 'failed_check', 'failed_traffic'])
    bad[result] = (await relay.metric('rollouts_total', `result="${result}"`)) || 0;
  return {
    bad,
    released: (await relay.metric('rollouts_total', 'result="released"')) || 0,
    requests: fleet.requests,
    failures: fleet.failures(new Set()),
    seconds: (performance.now() - before) / 1000,
  };
}
