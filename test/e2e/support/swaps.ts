import { setTimeout as sleep } from 'node:timers/promises';
import { ConstantRequests } from './constant-requests.ts';
import { Envoy, type Transport } from './envoy.ts';
import { eventually } from './eventually.ts';
import { ModelPlane, realBody } from './model-plane.ts';
import { RelayProcess, upstream } from './relay.ts';
import { cluster, endpoints, listener, type Resource, routes } from './resources.ts';
import type { EnvoySetting } from './setting.ts';

export interface Swaps {
  readonly transport: Transport;
  readonly protocol: 'SOTW' | 'DELTA';
  readonly swaps: number;
  /** `broken`: the old cluster goes before the route leads to the new one. */
  readonly order: 'make before break' | 'broken';
  readonly removal_grace?: string;
  /** Bytes of each cluster, more than `window` keep Envoy busy. */
  readonly size: number;
  readonly window: number;
}

export interface SwapsOutcome {
  /** What Envoy answered, counted. */
  readonly answers: ReadonlyMap<string, number>;
  /** Updates that Envoy never saw, because it was busy when a newer one came. */
  readonly coalesced: number;
}

type Name = 'x' | 'y';

/** Resources of the one website, whose route leads to cluster x or y: their endpoints come by EDS. */
class Site {
  readonly #plane: ModelPlane;
  readonly #ports: Readonly<Record<Name, number>>;
  readonly #padding: object;

  constructor(plane: ModelPlane, { one, two }: EnvoySetting, size: number) {
    this.#plane = plane;
    this.#ports = { x: one.port, y: two.port };
    this.#padding = { metadata: { filter_metadata: { padding: { text: 'x'.repeat(size) } } } };
  }

  begin(): void {
    this.endpoints('x');
    this.clusters('x');
    this.#set('lds', [['web', listener('web', 'web-routes')]]);
    this.route('x');
  }

  clusters(...names: readonly Name[]): void {
    this.#set(
      'cds',
      names.map((name) => [name, { ...cluster(name), ...this.#padding }]),
    );
  }

  endpoints(...names: readonly Name[]): void {
    this.#set(
      'eds',
      names.map((name) => [name, endpoints(name, this.#ports[name])]),
    );
  }

  route(to: Name): void {
    this.#set('rds', [['web-routes', routes('web-routes', { '/': to })]]);
  }

  #set(short: string, resources: readonly (readonly [string, Resource])[]): void {
    this.#plane.set(short, new Map(resources.map(([name, one]) => [name, JSON.stringify(one)])));
  }
}

/**
 * A control plane swaps the cluster behind a route, again and again, while an Envoy behind the relay gets requests all
 * the time: {x, y}, the route to y, {y}, without a pause in between. Envoy alone would fail many: it takes the route at
 * once, and y only when it has asked for its endpoints and got them.
 */
export async function swapClusters(setting: EnvoySetting, options: Swaps): Promise<SwapsOutcome> {
  const { transport, protocol, swaps, order, size, window, removal_grace = '15s' } = options;
  await using plane = await ModelPlane.start(realBody);
  const site = new Site(plane, setting, size);
  site.begin();
  const xds = { removal_grace };
  await using relay = await RelayProcess.start({ upstreams: [upstream(plane.address, protocol)], xds });
  await using envoy = await Envoy.start(setting.envoyBinary, { xds: relay.xds, transport, window });
  await envoy.answers('web', '/', 'one');
  await using requests = new ConstantRequests(await envoy.url('web'));
  for (let swap = 1; swap <= swaps; swap++) {
    const [from, to]: readonly [Name, Name] = swap % 2 === 1 ? ['x', 'y'] : ['y', 'x'];
    site.endpoints('x', 'y');
    if (order === 'make before break') {
      site.clusters(from, to);
      site.route(to);
      site.clusters(to);
      site.endpoints(to);
    } else {
      site.clusters(to);
      await sleep(50);
      site.route(to);
    }
    // Some are overtaken by the next.
    if (swap % 5 !== 0) await arrives(requests, to === 'x' ? '200 one' : '200 two');
  }
  await arrives(requests, swaps % 2 === 1 ? '200 two' : '200 one');
  await sleep(100);
  await requests.stop();
  const coalesced = await relay.metric('downstream_coalesced_total');
  return { answers: requests.answers, coalesced: Number.isNaN(coalesced) ? 0 : coalesced };
}

async function arrives(requests: ConstantRequests, answer: string): Promise<void> {
  await eventually(
    () => {
      if (requests.last !== answer)
        throw new Error(`the last answer was ${requests.last} instead of ${answer}`);
    },
    { pause: 2 },
  );
}
