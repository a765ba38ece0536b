import type { Plain } from '../admin/plain.ts';
import type { Request } from '../admin/requests.ts';
import type { ClusterLoad, LoadResponse } from '../gen/distributary/admin/v1/load_pb.ts';
import type { LoadView, ReportingClass } from '../load/load-view.ts';
import { compileGlob } from '../security/pattern.ts';

/** Of an answer. */
const mostLoads = 1000;

/** What clients of this process have reported. */
export function loadOf(view: LoadView, asked: Request<'load'>): Plain<LoadResponse> {
  const { loads, seconds } = view.rows();
  const isCluster = compileGlob(asked.cluster);
  const meant = loads.filter(
    ({ cluster, of }) => (asked.cluster === '' || isCluster(cluster)) && isClass(of, asked),
  );
  return {
    loads: meant
      .map(({ cluster, of, success, error, dropped }) => ({
        cluster,
        class: of.id,
        parameters: Object.fromEntries(of.parameters.entries),
        requests: success + error,
        errors: error,
        dropped,
      }))
      .toSorted(byRequests)
      .slice(0, mostLoads),
    total: meant.length,
    seconds,
  };
}

/** What several processes say, as one. */
export function mergeLoads(answers: readonly Plain<LoadResponse>[]): Plain<LoadResponse> {
  const loads = new Map<string, Plain<ClusterLoad>>();
  for (const one of answers.flatMap((answer) => answer.loads)) {
    const key = JSON.stringify([one.class, one.cluster]);
    const known = loads.get(key);
    loads.set(key, known === undefined ? one : sum(known, one));
  }
  return {
    loads: [...loads.values()].toSorted(byRequests).slice(0, mostLoads),
    // What a process has left out is counted at least once.
    total: Math.max(loads.size, ...answers.map(({ total }) => total)),
    seconds: Math.max(0, ...answers.map(({ seconds }) => seconds)),
  };
}

const sum = (a: Plain<ClusterLoad>, b: Plain<ClusterLoad>): Plain<ClusterLoad> => ({
  ...a,
  requests: a.requests + b.requests,
  errors: a.errors + b.errors,
  dropped: a.dropped + b.dropped,
});

const byRequests = (a: Plain<ClusterLoad>, b: Plain<ClusterLoad>): number =>
  b.requests - a.requests || (a.cluster < b.cluster ? -1 : 1);

const isClass = ({ id, parameters }: ReportingClass, asked: Request<'load'>): boolean =>
  asked.class === '' ||
  asked.class === id ||
  parameters.entries.entries().some(([key, value]) => asked.class === `${key}=${value}`);
