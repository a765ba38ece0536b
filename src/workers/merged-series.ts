import type { Series } from '../observe/series.ts';

/** The metrics of clients, beside `distributary_downstream_…`. */
const ofClients = new Set([
  'distributary_propagation_seconds',
  'distributary_acknowledged_seconds',
  'distributary_cache_lookups_total',
  'distributary_classes',
  'distributary_peer_accounts',
  'distributary_peer_waiting',
  'distributary_peer_held_bytes',
]);
/** Of xds and rest in a worker, of admin and upstreams in the primary. */
const isOfCertificates = ({ name }: Series): boolean => name.startsWith('distributary_certificate_');
const isOfLoad = ({ name }: Series): boolean => name.startsWith('distributary_load_');
const feedHistogram = 'distributary_worker_feed_seconds';

/**
 * The primary's series as the relay shows them. The primary's streams are those of its workers, which are no clients. How
 * long an update takes to a worker is a histogram of its own.
 */
export function primarySeries(list: readonly Series[]): readonly Series[] {
  return list.flatMap((series) => {
    if (series.name === 'distributary_propagation_seconds') return asFeedHistogram(series);
    // Upstream sessions that were refused are the clients', too. Of load reports each process counts its own part.
    if (series.name === 'distributary_downstream_rejected_total' || isOfLoad(series)) return series;
    return isOfClients(series) ? [] : series;
  });
}

/**
 * A worker's series as the relay shows them: those of clients and of certificates, to be merged over all
 * workers, and those of the process with the worker's number as a label. Those of the worker's cache and upstream would repeat the primary's.
 */
export function workerSeries(list: readonly Series[], number: number): readonly Series[] {
  return list.flatMap((series) => {
    if (isOfClients(series) || isOfCertificates(series)) return series;
    return series.name.startsWith('distributary_') ? [] : withWorkerLabel(series, number);
  });
}

/** The counters of a worker that has ended. Sums must not shrink, or they would look like a restart. */
export function countersOfEnded(list: readonly Series[]): readonly Series[] {
  return list.filter(
    (series) => series.type !== 'gauge' && (isOfClients(series) || isOfCertificates(series)),
  );
}

function isOfClients(series: Series): boolean {
  const { name } = series;
  return name.startsWith('distributary_downstream_') || ofClients.has(name) || isOfLoad(series);
}

function withWorkerLabel(series: Series, number: number): Series {
  const values = series.values.map((value) => ({ ...value, labels: { ...value.labels, worker: number } }));
  return { ...series, values };
}

function asFeedHistogram(series: Series): Series {
  return {
    name: feedHistogram,
    help: "From the receipt of an update to its handover to a worker's stream",
    type: series.type,
    values: series.values.map(({ metricName = series.name, ...value }) => ({
      ...value,
      metricName: metricName.replace(series.name, feedHistogram),
    })),
  };
}
