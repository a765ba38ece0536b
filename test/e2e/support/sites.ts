import type { Backend } from './backend.ts';
import {
  cluster,
  configSource,
  customListener,
  endpoints,
  listener,
  type Resource,
  routes,
} from './resources.ts';

/** Where the clusters lead: `office` to the second one, the others to the first one. */
export interface Backends {
  readonly one: Backend;
  readonly two: Backend;
}

const clusters = ['shop', 'office', 'lager', 'yard'];
/** A cluster that was there once. */
const gone = 'annex';

const web = listener('web', 'web-routes');
const router = {
  name: 'first-router',
  typed_config: { '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router' },
};
const rds = { rds: { route_config_name: 'web-routes', config_source: configSource('ads') } };
/** Envoy takes a router only as the last filter. */
const badWeb = customListener('web', rds, [router]);

/** `mark`: the prefix of a route by which the version shows. */
const routesTo = (mark: string, office: string): Resource =>
  routes('web-routes', { '/office': office, [`/${mark}`]: 'shop', '/': 'shop' });

const clustersOf = ({ one, two }: Backends, names: readonly string[]): readonly Resource[] =>
  names.flatMap((name) => [cluster(name), endpoints(name, name === 'office' ? two.port : one.port)]);

export const firstSite = (backends: Backends): readonly Resource[] => [
  ...[web, routesTo('first', 'office')],
  ...clustersOf(backends, [...clusters, gone]),
];

/** It works: a request to `/office` is answered by the second backend. */
export const goodSite = (mark: string, backends: Backends): readonly Resource[] => [
  ...[web, routesTo(mark, 'office')],
  ...clustersOf(backends, clusters),
];

/** Each Envoy accepts it, and answers requests to `/office` with 503. */
export const wrongSite = (backends: Backends): readonly Resource[] => [
  ...[web, routesTo('wrong', gone)],
  ...clustersOf(backends, clusters),
];

export interface BadSite {
  readonly title: string;
  /** Why it is held. */
  readonly reason: RegExp;
  readonly site: (backends: Backends) => readonly Resource[];
}

/** Each is held if `max_removal_percent` is below 50. */
export const badSites: readonly BadSite[] = [
  {
    title: 'a listener that Envoy rejects',
    reason: /^lds web: .*terminal/,
    site: (backends) => [badWeb, routesTo('bad', 'shop'), ...clustersOf(backends, clusters)],
  },
  {
    title: 'a route to a cluster that is gone',
    reason: /^rds web-routes: .*unknown cluster 'annex'/,
    // Without validate_clusters Envoy takes a route to a cluster that it does not have.
    site: (backends) => [
      ...[web, { ...routesTo('bad', gone), validate_clusters: true }],
      ...clustersOf(backends, clusters),
    ],
  },
  {
    title: 'half the clusters missing',
    reason: /^2 of 4 cds of central would be removed/,
    // Endpoints are not gated (rollout.types): without them, newcomers would have a cluster that leads nowhere.
    site: (backends) => [
      ...[web, routesTo('bad', 'shop'), ...clustersOf(backends, ['shop', 'yard'])],
      ...[endpoints('office', backends.two.port), endpoints('lager', backends.one.port)],
    ],
  },
];
