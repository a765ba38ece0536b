import { expect } from 'chai';
import { Metrics } from '../../src/observe/metrics.ts';
import { formatSum, sumSeries } from '../../src/observe/series.ts';
import { countersOfEnded, primarySeries, workerSeries } from '../../src/workers/worker-pool.ts';
import { type } from '../support/in-memory-relay.ts';

const cds = type('cds');

function process(count: number): Metrics {
  const metrics = new Metrics();
  metrics.count.requests(cds, 'ack').inc(count);
  metrics.count.lookups(cds, 'hit').inc(count);
  metrics.count.updates('central', cds, 'accepted').inc(count);
  metrics.count.rejected('streams').inc(count);
  for (let time = 0; time < count; time++) {
    metrics.observe.propagation().observe(0.001);
    metrics.acknowledged(cds).observe(0.001);
  }
  return metrics;
}

async function shown(...workers: readonly Metrics[]): Promise<(line: string) => string | undefined> {
  const primary = process(1000);
  primary.sampleFrom(() => ({
    downstream_subscriptions: [[9, cds]],
    downstream_streams: [[2, 'delta', 'ads']],
  }));
  const own = primarySeries(await primary.series());
  const lists = await Promise.all(
    workers.map(async (metrics, index) => workerSeries(await metrics.series(), index + 1)),
  );
  const text = await formatSum([own, ...lists]);
  return (line) =>
    text
      .split('\n')
      .find((found) => found.startsWith(`${line} `))
      ?.slice(line.length + 1);
}

describe('metrics of a primary and its workers', () => {
  it('what concerns clients is the sum over workers, what concerns upstreams is the primary’s', async () => {
    const value = await shown(process(1), process(20));
    expect(value('distributary_downstream_requests_total{type="cds",kind="ack"}')).to.equal('21');
    expect(value('distributary_cache_lookups_total{type="cds",result="hit"}')).to.equal('21');
    expect(
      value('distributary_upstream_updates_total{upstream="central",type="cds",result="accepted"}'),
    ).to.equal('1000');
    expect(value('distributary_downstream_rejected_total{reason="streams"}')).to.equal('1021');
  });

  it('a gauge of clients is 0 where no worker has it, as of a type that is cached', async () => {
    const one = process(1);
    const value = await shown(one);
    const subscriptions = 'distributary_downstream_subscriptions{type="cds"}';
    const streams = 'distributary_downstream_streams{transport="delta",service="ads"}';
    expect([value(subscriptions), value(streams)]).to.deep.equal(['0', '0']);
    one.sampleFrom(() => ({ downstream_subscriptions: [[3, cds]] }));
    expect((await shown(one, one))(subscriptions)).to.equal('6');
  });

  it('a point in time is the earliest, never a sum', async () => {
    const [one, other] = [process(1), process(1)];
    one.certificates.follow({ listener: 'xds' }, 'xds.crt', 'certificate').expiresAt = 2_000_000;
    other.certificates.follow({ listener: 'xds' }, 'xds.crt', 'certificate').expiresAt = 1_000_000;
    const value = await shown(one, other);
    expect(value('distributary_certificate_expiry_timestamp_seconds{listener="xds"}')).to.equal('1000');
  });

  it('a certificate is in force where all have it, and each process counts its own reloads', async () => {
    const [one, other] = [process(1), process(1)];
    one.certificates.follow({ listener: 'xds' }, 'xds.crt', 'certificate').reloads.success++;
    const refusing = other.certificates.follow({ listener: 'xds' }, 'xds.crt', 'certificate');
    refusing.reloads.success++;
    refusing.refuse('no', 0);
    const value = await shown(one, other);
    expect(value('distributary_certificate_last_reload_successful{listener="xds"}')).to.equal('0');
    expect(value('distributary_certificate_reloads_total{listener="xds",result="success"}')).to.equal('2');
    expect(value('distributary_certificate_reloads_total{listener="xds",result="refused"}')).to.equal('1');
    const left = countersOfEnded(await other.series()).map(({ name }) => name);
    expect(left).to.include('distributary_certificate_reloads_total');
    expect(left).to.not.include('distributary_certificate_last_reload_successful');
  });

  it('histograms are summed; the primary’s is that of the way to its workers', async () => {
    const value = await shown(process(1), process(20));
    expect(value('distributary_propagation_seconds_count')).to.equal('21');
    expect(value('distributary_propagation_seconds_bucket{le="0.001"}')).to.equal('21');
    expect(value('distributary_acknowledged_seconds_count{type="cds"}')).to.equal('21');
    expect(value('distributary_worker_feed_seconds_count')).to.equal('1000');
    expect(value('distributary_worker_feed_seconds_bucket{le="+Inf"}')).to.equal('1000');
  });

  it('a process has its worker’s number as a label', () => {
    const series = { name: 'process_cpu_seconds_total', help: '', type: 'counter' };
    const [labelled] = workerSeries([{ ...series, values: [{ value: 1, labels: { a: 'b' } }] }], 2);
    expect(labelled?.values).to.deep.equal([{ value: 1, labels: { a: 'b', worker: 2 } }]);
  });

  it('what a worker that has ended leaves are its counts, not its gauges', async () => {
    const metrics = process(3);
    metrics.sampleFrom(() => ({ downstream_connections: [[3]], downstream_streams: [[5, 'delta', 'ads']] }));
    const left = countersOfEnded(await metrics.series());
    const names = left.map(({ name }) => name);
    expect(names).to.include('distributary_downstream_requests_total');
    expect(names).not.to.include('distributary_downstream_streams');
    const sums = await sumSeries([left, left]);
    const sum = sums.find(({ name }) => name.endsWith('requests_total'));
    expect(sum?.values.map(({ value }) => value)).to.deep.equal([6]);
  });
});
