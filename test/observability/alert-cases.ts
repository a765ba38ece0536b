/** Samples of series, one for each `interval`, in promtool's notation: `0+2x10` is 0, 2, 4 … 20. */
type SeriesValues = Readonly<Record<string, string>>;

/** One alert, seen firing and seen quiet. */
export interface AlertCase {
  readonly alert: string;
  readonly fires: SeriesValues;
  /** A counter that begins with its first increment. */
  readonly begins?: SeriesValues;
  /** As like `fires` as it may be. */
  readonly quiet: SeriesValues;
  /** When both are looked at. */
  readonly at: string;
  /** A minute unless told: longer where hours pass. */
  readonly interval?: string;
  /** Of the alert, beside its severity. */
  readonly labels: Readonly<Record<string, string>>;
  /** Left out: that of `alertDescriptions`. */
  readonly description?: string;
}

const target = 'job="distributary",instance="r1:19090"';
const labels = { job: 'distributary', instance: 'r1:19090' };
const series = (name: string, more = ''): string => `${name}{${target}${more === '' ? '' : `,${more}`}}`;
const relay = (name: string, more = ''): string => series(`distributary_${name}`, more);

const pod = { job: 'kubernetes-pods', instance: 'r1:19090', pod: 'edge-0' };
const inPod = (name: string): string =>
  `${name}{job="${pod.job}",instance="${pod.instance}",pod="${pod.pod}"}`;

/** A gauge that has one value all the time. */
function gauge(
  alert: string,
  name: string,
  values: readonly [fires: number, quiet: number],
  more: Readonly<Record<string, string>> = {},
  { at, interval }: Pick<AlertCase, 'at' | 'interval'> = { at: '20m' },
): AlertCase {
  const written = Object.entries(more)
    .map(([key, value]) => `${key}="${value}"`)
    .join(',');
  return {
    alert,
    fires: { [relay(name, written)]: `${values[0]}x100` },
    quiet: { [relay(name, written)]: `${values[1]}x100` },
    at,
    ...(interval === undefined ? {} : { interval }),
    labels: { ...labels, ...more },
  };
}

/** A certificate that expires at that time of the case, and lives so long. */
function certificate(
  alert: string,
  fires: readonly [expires: number, lifetime: number],
  quiet: typeof fires,
  more: Readonly<Record<string, string>>,
  left: string,
): AlertCase {
  const written = Object.entries(more)
    .map(([key, value]) => `${key}="${value}"`)
    .join(',');
  const both = ([expires, lifetime]: typeof fires): SeriesValues => ({
    [relay('certificate_expiry_timestamp_seconds', written)]: `${expires}x100`,
    [relay('certificate_not_before_timestamp_seconds', written)]: `${expires - lifetime}x100`,
  });
  const of = Object.entries(more).map(([key, value]) => `${key} ${value}`);
  return {
    alert,
    fires: both(fires),
    quiet: both(quiet),
    at: '20m',
    labels: { ...labels, ...more },
    description: `r1:19090, ${of.join()}: time left ${left}.`,
  };
}

/** A counter that grows by so much every minute, or not at all. */
function counter(
  alert: string,
  name: string,
  more: Readonly<Record<string, string>>,
  quiet: SeriesValues,
  { begins = false }: { readonly begins?: boolean } = {},
): AlertCase {
  const written = Object.entries(more)
    .map(([key, value]) => `${key}="${value}"`)
    .join(',');
  const grows = { [relay(name, written)]: `5+1x100` };
  const one: AlertCase = { alert, fires: grows, quiet, at: '80m', labels: { ...labels, ...more } };
  return begins ? { ...one, begins: { [relay(name, written)]: '_x75 1x20' } } : one;
}

/** Changes of a minute: accepted in all, within a second, and rejected. */
function changes(accepted: number, quick: number, rejected: number): SeriesValues {
  return {
    [relay('acknowledged_seconds_count', 'type="cds"')]: `0+${accepted}x400`,
    [relay('acknowledged_seconds_bucket', 'type="cds",le="1"')]: `0+${quick}x400`,
    [relay('acknowledged_seconds_bucket', 'type="cds",le="+Inf"')]: `0+${accepted}x400`,
    [relay('downstream_requests_total', 'type="cds",kind="nack"')]: `0+${rejected}x400`,
  };
}

const day = 86_400;
const nearLimit = (alert: string, used: string, bound: string): AlertCase => ({
  alert,
  fires: { [used]: '810x30', [relay('limit', `name="${bound}"`)]: '1000x30' },
  quiet: { [used]: '790x30', [relay('limit', `name="${bound}"`)]: '1000x30' },
  at: '20m',
  labels,
});

export const alertCases: readonly AlertCase[] = [
  {
    alert: 'DistributaryDown',
    fires: { [series('up')]: '1x3 0x20' },
    quiet: { [series('up')]: '1x30', 'up{job="other",instance="o1:80"}': '0x30' },
    at: '20m',
    labels,
  },
  {
    // Of pods that Prometheus finds by their annotations, the job is not called after the relay.
    alert: 'DistributaryDown',
    fires: { [inPod('up')]: '1x3 0x20', [inPod('distributary_build_info')]: '1x3' },
    quiet: { [inPod('up')]: '0x30', [relay('build_info')]: '1x30' },
    at: '20m',
    labels: pod,
    description: 'edge-0 of job kubernetes-pods does not answer.',
  },
  {
    // Of a pod that is not scheduled there is no `up` either.
    alert: 'DistributaryGone',
    fires: { [relay('build_info')]: '1x3 stale' },
    quiet: {
      [relay('build_info')]: '1x3 stale',
      'distributary_build_info{job="distributary",instance="r2:19090"}': '1x30',
    },
    at: '20m',
    labels: { job: 'distributary' },
  },
  gauge('DistributaryNotReady', 'ready', [0, 1]),
  {
    alert: 'DistributaryBusy',
    fires: { [series('nodejs_eventloop_lag_p99_seconds')]: '0.6x30', [relay('build_info')]: '1x30' },
    // The lag of another Node.js is none of the relay's.
    quiet: {
      [series('nodejs_eventloop_lag_p99_seconds')]: '0.4x30',
      [relay('build_info')]: '1x30',
      'nodejs_eventloop_lag_p99_seconds{job="other",instance="o1:80"}': '3x30',
    },
    at: '20m',
    labels,
  },
  counter(
    'DistributaryWorkersRestart',
    'worker_restarts_total',
    {},
    { [relay('worker_restarts_total')]: '0x79 1' },
  ),
  gauge('DistributaryConfigurationRefused', 'config_last_reload_successful', [0, 1]),
  certificate(
    'DistributaryCertificateEndsSoon',
    [6 * day, 90 * day],
    [9 * day, 90 * day],
    { listener: 'xds' },
    '5d 23h 40m 0s',
  ),
  certificate(
    'DistributaryCertificateEndsSoon',
    [day / 5, day],
    [day / 3, day],
    { listener: 'xds' },
    '4h 28m 0s',
  ),
  certificate(
    'DistributaryCertificateEnds',
    [1000, 90 * day],
    [2 * day, 90 * day],
    { upstream: 'central' },
    '-3m 20s',
  ),
  certificate(
    'DistributaryCertificateEnds',
    [day / 15, day],
    [day / 7, day],
    { upstream: 'central' },
    '1h 16m 0s',
  ),
  gauge('DistributaryCertificateRefused', 'certificate_last_reload_successful', [0, 1], {
    upstream: 'central',
    siblings: 'true',
  }),
  counter(
    'DistributaryDiskFails',
    'persistence_errors_total',
    { reason: 'full' },
    { [relay('persistence_errors_total', 'reason="full"')]: '7x100' },
    { begins: true },
  ),
  gauge('DistributaryDiskLate', 'persistence_lag_seconds', [301, 20]),
  gauge('DistributaryControlPlaneAway', 'upstream_connected', [0, 1], { upstream: 'central' }),
  gauge('DistributaryDataOutOfDate', 'upstream_stale_seconds', [901, 60], { upstream: 'central' }),
  counter(
    'DistributaryUpstreamStreamsEnd',
    'upstream_stream_ends_total',
    { upstream: 'central', code: 'INVALID_ARGUMENT' },
    {
      [relay('upstream_stream_ends_total', 'upstream="central",code="OK"')]: '0+3x100',
      [relay('upstream_stream_ends_total', 'upstream="central",code="UNAVAILABLE"')]: '0+3x100',
      [relay('upstream_stream_ends_total', 'upstream="central",code="INTERNAL"')]: '0x75 1x5',
    },
  ),
  counter(
    'DistributaryUpdatesRefused',
    'upstream_updates_total',
    { upstream: 'central', type: 'cds', result: 'rejected' },
    {
      [relay('upstream_updates_total', 'upstream="central",type="cds",result="accepted"')]: '0+9x100',
      [relay('upstream_updates_total', 'upstream="central",type="cds",result="rejected"')]: '3x100',
    },
    { begins: true },
  ),
  gauge('DistributaryRemovalsHeld', 'held_removals', [17, 0], { upstream: 'central' }),
  counter(
    'DistributaryAmbiguousVariants',
    'ambiguous_matches_total',
    { type: 'cds' },
    { [relay('ambiguous_matches_total', 'type="cds"')]: '4x100' },
    { begins: true },
  ),
  {
    alert: 'DistributaryChangesLateFast',
    fires: changes(100, 80, 0),
    // 10 % are late. And a small fleet with one late client of two is not an emergency.
    quiet: {
      ...changes(100, 90, 0),
      'distributary_acknowledged_seconds_count{job="small"}': '0x79 2',
      'distributary_acknowledged_seconds_bucket{job="small",le="1"}': '0x79 1',
    },
    at: '80m',
    labels: { job: 'distributary' },
  },
  {
    alert: 'DistributaryChangesLateSlow',
    // Rejected, not late.
    fires: changes(90, 90, 10),
    quiet: changes(95, 95, 5),
    at: '7h',
    interval: '2m',
    labels: { job: 'distributary' },
  },
  counter(
    'DistributaryRejections',
    'downstream_requests_total',
    { type: 'cds', kind: 'nack' },
    {
      [relay('downstream_requests_total', 'type="cds",kind="nack"')]: '4x100',
      [relay('downstream_requests_total', 'type="cds",kind="ack"')]: '0+9x100',
    },
    { begins: true },
  ),
  gauge('DistributaryClientsReject', 'downstream_rejecting', [1, 0], { type: 'cds' }),
  {
    alert: 'DistributaryClientsSilent',
    fires: { [relay('downstream_unacknowledged', 'type="cds"')]: '2x30' },
    // Somebody is always about to answer.
    quiet: { [relay('downstream_unacknowledged', 'type="cds"')]: '2x5 0 2x5 0 2x5 0 2x5' },
    at: '20m',
    labels: { ...labels, type: 'cds' },
  },
  {
    alert: 'DistributaryClientsLackResources',
    fires: { [relay('unmatched_subscriptions', 'type="rds"')]: '1x30' },
    // What nobody has is another matter, and a client that has just come may wait for its first answer.
    quiet: {
      [relay('missing_subscriptions', 'type="rds"')]: '7x30',
      [relay('unmatched_subscriptions', 'type="rds"')]: '0x10 1x3 0x20',
    },
    at: '20m',
    labels: { ...labels, type: 'rds' },
  },
  counter(
    'DistributaryClientsStall',
    'downstream_rejected_total',
    { reason: 'stalled' },
    { [relay('downstream_rejected_total', 'reason="draining"')]: '0+1x100' },
  ),
  counter(
    'DistributaryClientsTurnedAway',
    'downstream_rejected_total',
    { reason: 'streams' },
    {
      [relay('downstream_rejected_total', 'reason="streams"')]: '4x100',
      [relay('downstream_rejected_total', 'reason="denied"')]: '0+1x100',
    },
  ),
  counter(
    'DistributaryClientsRefused',
    'downstream_rejected_total',
    { reason: 'denied' },
    {
      [relay('downstream_rejected_total', 'reason="denied"')]: '4x100',
      [relay('downstream_rejected_total', 'reason="certificate_unknown_issuer"')]: '0+1x100',
      [relay('downstream_rejected_total', 'reason="certificate_ended"')]: '0+1x100',
    },
  ),
  nearLimit(
    'DistributaryStreamsNearLimit',
    relay('downstream_streams', 'transport="delta",service="ads"'),
    'max_streams',
  ),
  {
    // Streams of load reports have places of limits.max_streams, too; those to control planes have none.
    ...nearLimit(
      'DistributaryStreamsNearLimit',
      relay('load_report_streams', 'direction="received"'),
      'max_streams',
    ),
    quiet: {
      [relay('downstream_streams', 'transport="delta",service="ads"')]: '700x30',
      [relay('load_report_streams', 'direction="received"')]: '90x30',
      [relay('load_report_streams', 'direction="sent"')]: '20x30',
      [relay('limit', 'name="max_streams"')]: '1000x30',
    },
  },
  nearLimit('DistributaryConnectionsNearLimit', relay('downstream_connections'), 'max_connections'),
  {
    alert: 'DistributaryChangeHeld',
    fires: {
      [relay('rollout_state', 'state="HELD"')]: '1x30',
      [relay('rollout_state', 'state="CANARY"')]: '0x30',
    },
    quiet: {
      [relay('rollout_state', 'state="HELD"')]: '0x30',
      [relay('rollout_state', 'state="CANARY"')]: '1x30',
    },
    at: '20m',
    labels: { ...labels, state: 'HELD' },
  },
  counter(
    'DistributaryRolloutsTimeOut',
    'rollouts_total',
    { result: 'timeout' },
    {
      [relay('rollouts_total', 'result="released"')]: '0+1x100',
      [relay('rollouts_total', 'result="timeout"')]: '2x100',
    },
  ),
  gauge('DistributaryDiscarded', 'discarded_names', [1, 0], {}, { at: '90m' }),
  gauge('DistributaryFrozen', 'frozen', [1, 0], {}, { at: '25h', interval: '30m' }),
];

/** What each alert says of its case, beside its summary. */
export const alertDescriptions: Readonly<Record<string, string>> = {
  DistributaryDown: 'r1:19090 of job distributary does not answer.',
  DistributaryGone: 'Job distributary had 1 in the last day, counted with those that were replaced.',
  DistributaryNotReady: 'r1:19090: its /ready says why.',
  DistributaryBusy: 'r1:19090: one event in a hundred waits for more than 600ms.',
  DistributaryWorkersRestart: 'r1:19090: 60 in the last hour.',
  DistributaryConfigurationRefused: 'r1:19090 still has the configuration before.',
  DistributaryCertificateRefused: 'r1:19090, upstream central (siblings).',
  DistributaryDiskFails: 'r1:19090: full.',
  DistributaryDiskLate: 'r1:19090: for 5m 1s.',
  DistributaryControlPlaneAway: 'r1:19090 has no connection to central.',
  DistributaryDataOutOfDate: 'r1:19090: from central, for 15m 1s.',
  DistributaryUpstreamStreamsEnd: 'r1:19090: 10 by central with INVALID_ARGUMENT in the last 10 minutes.',
  DistributaryUpdatesRefused: 'r1:19090: cds of central.',
  DistributaryRemovalsHeld: 'r1:19090: 17 of central.',
  DistributaryAmbiguousVariants: 'r1:19090: cds.',
  DistributaryChangesLateFast: 'distributary: 20% in the last 5 minutes.',
  DistributaryChangesLateSlow: 'distributary: 10% in the last 30 minutes.',
  DistributaryRejections: 'r1:19090: cds.',
  DistributaryClientsReject: 'r1:19090: cds on 1 stream.',
  DistributaryClientsSilent: 'r1:19090: cds on 2 streams.',
  DistributaryClientsLackResources: 'r1:19090: 1 subscription to rds.',
  DistributaryClientsStall: 'r1:19090: 10 in the last 10 minutes.',
  DistributaryClientsTurnedAway: 'r1:19090: streams, 10 in the last 10 minutes.',
  DistributaryClientsRefused: 'r1:19090: denied, 10 in the last 10 minutes.',
  DistributaryStreamsNearLimit: 'r1:19090: 810 are open.',
  DistributaryConnectionsNearLimit: 'r1:19090: 810 are open.',
  DistributaryChangeHeld: 'r1:19090 holds it.',
  DistributaryRolloutsTimeOut: 'r1:19090: 60 in the last hour.',
  DistributaryDiscarded: 'r1:19090: 1 name; its `status` says which types, and why.',
  DistributaryFrozen: 'r1:19090: its `status` says by whom, and why.',
};
