import { expect } from 'chai';
import fc from 'fast-check';
import { Histogram, Registry } from 'prom-client';
import { typeUrl } from '../../src/model/brand.ts';
import { Metrics } from '../../src/observe/metrics.ts';
import { bucketsOf, Distribution, Family, formatSum, Tally } from '../../src/observe/series.ts';

const cds = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
const other = (index: number) => typeUrl(`type.googleapis.com/example.T${index}`);

/** The samples of one metric, without comments. */
function samples(text: string, name: string): string[] {
  return text.split('\n').filter((line) => new RegExp(`^${name}[ {]`).test(line));
}

describe('metrics', () => {
  it('show what this process knows as it is after the others have answered', async () => {
    const metrics = new Metrics();
    const followed = metrics.certificates.follow({ listener: 'xds' }, 'xds.crt', 'certificate');
    followed.expiresAt = 1_600_000_000_000;
    let connections = 1;
    metrics.sampleFrom(() => ({ downstream_connections: [[connections]] }));
    metrics.relay('1.2.3', async () => {
      await Promise.resolve();
      followed.expiresAt = 1_700_000_000_000;
      connections = 2;
      return {};
    });
    const text = await metrics.text();
    expect(samples(text, 'distributary_certificate_expiry_timestamp_seconds')).to.deep.equal([
      'distributary_certificate_expiry_timestamp_seconds{listener="xds"} 1700000000',
    ]);
    expect(samples(text, 'distributary_downstream_connections')).to.deep.equal([
      'distributary_downstream_connections 2',
    ]);
  });
  it('have every name of the contract, with its labels', async () => {
    const metrics = new Metrics();
    metrics.count.requests(cds, 'ack').inc();
    metrics.count.responses(cds, 'sotw').inc(7);
    metrics.count.responseBytes(cds).inc(100);
    metrics.count.coalesced(cds).inc(2);
    metrics.count.rejected('streams').inc();
    metrics.observe.propagation().observe(0.003);
    metrics.acknowledged(cds).observe(0.3);
    metrics.count.updates('central', cds, 'accepted').inc();
    metrics.count.reconnects('central').inc();
    metrics.set.lastUpdate('central', cds).value = 1_500_000_000;
    metrics.count.lookups(cds, 'hit').inc(3);
    metrics.count.evictions('size').inc();
    metrics.count.ambiguous(cds).inc();
    metrics.count.persistenceErrors('full').inc();
    metrics.persistence(() => ({
      persistence_lag_seconds: [[1.5]],
      persistence_last_write_timestamp_seconds: [[1_500_000_000]],
    }));
    metrics.sampleFrom(() => ({
      downstream_connections: [[3]],
      peer_accounts: [[1]],
      downstream_streams: [[4, 'delta', 'ads']],
      downstream_subscriptions: [[9, cds]],
      classes: [[2, cds]],
      downstream_unacknowledged: [[3, cds]],
      downstream_rejecting: [[1, cds]],
      cache_resources: [[5, cds]],
      cache_variants: [[6, cds]],
      upstream_connected: [[1, 'central']],
      upstream_sessions: [[2, 'central']],
      upstream_stale_seconds: [[0, 'central']],
      upstream_from_siblings: [[1, 'central']],
      cache_bytes: [[1234]],
    }));
    metrics.certificates.follow({ listener: 'xds' }, 'xds.crt', 'certificate').expiresAt = 1_600_000_000_000;
    const toCentral = metrics.certificates.follow({ upstream: 'central' }, 'relay.crt', 'certificate');
    toCentral.expiresAt = 1_700_000_000_000;
    toCentral.refuse('no', 0);
    // A reload of the configuration makes another one, and then ends the one before.
    const next = metrics.certificates.follow({ upstream: 'central' }, 'other.crt', 'certificate');
    Object.assign(next, { validFrom: 1_700_000_000_000, expiresAt: 1_800_000_000_000 });
    toCentral.stop();
    metrics.certificates.follow({ upstream: 'gone' }, 'relay.crt', 'certificate').stop();
    metrics.relay('1.2.3', () => ({
      ready: [[1]],
      held_removals: [[7, 'central']],
      limit: [[20_000, 'max_streams']],
      config_last_reload_timestamp_seconds: [[1_500_000_000]],
      config_last_reload_successful: [[1]],
    }));
    const text = await metrics.text();
    for (const line of [
      'classes{type="cds"} 2',
      'downstream_unacknowledged{type="cds"} 3',
      'downstream_rejecting{type="cds"} 1',
      'certificate_expiry_timestamp_seconds{listener="xds"} 1600000000',
      'certificate_expiry_timestamp_seconds{upstream="central"} 1800000000',
      'certificate_not_before_timestamp_seconds{upstream="central"} 1700000000',
      'certificate_last_reload_successful{upstream="central"} 1',
      'certificate_reloads_total{listener="xds",result="success"} 0',
      'certificate_reloads_total{upstream="central",result="refused"} 1',
      `build_info{version="1.2.3",node="${process.version}"} 1`,
      'ready 1',
      'held_removals{upstream="central"} 7',
      'limit{name="max_streams"} 20000',
      'config_last_reload_timestamp_seconds 1500000000',
      'downstream_requests_total{type="cds",kind="ack"} 1',
      'downstream_responses_total{type="cds",transport="sotw"} 7',
      'downstream_response_bytes_total{type="cds"} 100',
      'downstream_coalesced_total{type="cds"} 2',
      'downstream_rejected_total{reason="streams"} 1',
      'propagation_seconds_bucket{le="0.0025"} 0',
      'propagation_seconds_bucket{le="0.005"} 1',
      'propagation_seconds_bucket{le="+Inf"} 1',
      'propagation_seconds_count 1',
      'acknowledged_seconds_bucket{type="cds",le="0.25"} 0',
      'acknowledged_seconds_bucket{type="cds",le="0.5"} 1',
      'acknowledged_seconds_count{type="cds"} 1',
      'upstream_updates_total{upstream="central",type="cds",result="accepted"} 1',
      'upstream_reconnects_total{upstream="central"} 1',
      'upstream_last_update_timestamp_seconds{upstream="central",type="cds"} 1500000000',
      'cache_lookups_total{type="cds",result="hit"} 3',
      'cache_evictions_total{reason="size"} 1',
      'ambiguous_matches_total{type="cds"} 1',
      'config_reloads_total{result="accepted"} 0',
      'config_reloads_total{result="rejected"} 0',
      'downstream_streams{transport="delta",service="ads"} 4',
      'downstream_connections 3',
      'downstream_subscriptions{type="cds"} 9',
      'upstream_connected{upstream="central"} 1',
      'upstream_sessions{upstream="central"} 2',
      'upstream_stale_seconds{upstream="central"} 0',
      'upstream_from_siblings{upstream="central"} 1',
      'cache_resources{type="cds"} 5',
      'cache_variants{type="cds"} 6',
      'cache_bytes 1234',
      'persistence_errors_total{reason="full"} 1',
      'persistence_lag_seconds 1.5',
      'persistence_last_write_timestamp_seconds 1500000000',
    ]) {
      expect(text.split('\n')).to.include(`distributary_${line}`);
    }
    expect(text).to.not.include('upstream="gone"');
  });

  it('count on between two scrapes, and count nothing twice', async () => {
    const metrics = new Metrics();
    const series = metrics.count.responses(cds, 'sotw');
    series.inc(2);
    await metrics.text();
    series.inc();
    expect(metrics.count.responses(cds, 'sotw')).to.equal(series);
    expect(samples(await metrics.text(), 'distributary_downstream_responses_total')).to.deep.equal([
      'distributary_downstream_responses_total{type="cds",transport="sotw"} 3',
    ]);
  });

  it('show in gauges what is now, not what was', async () => {
    const metrics = new Metrics();
    metrics.sampleFrom(() => ({ downstream_streams: [[1, 'sotw', 'ads']] }));
    await metrics.text();
    metrics.sampleFrom(() => ({ downstream_streams: [] }));
    expect(samples(await metrics.text(), 'distributary_downstream_streams')).to.be.empty;
  });

  it('tell only so many unknown types apart', async () => {
    const metrics = new Metrics();
    for (let index = 0; index < 100; index++) metrics.count.requests(other(index), 'subscribe').inc();
    const lines = samples(await metrics.text(), 'distributary_downstream_requests_total');
    expect(lines).to.have.length(33);
    expect(lines).to.include('distributary_downstream_requests_total{type="other",kind="subscribe"} 68');
    expect(lines[0]).to.include('type="type.googleapis.com/example.T0"');
  });

  it('tell only eight types apart that nobody serves, and those that are served beside them', async () => {
    const metrics = new Metrics((type) => type.endsWith('0'));
    for (let index = 99; index >= 0; index--) metrics.count.requests(other(index), 'subscribe').inc();
    const lines = samples(await metrics.text(), 'distributary_downstream_requests_total');
    const types = lines.map((line) => /example\.T(\d+)/.exec(line)?.[1] ?? 'other');
    const unserved = ['99', '98', '97', '96', '95', '94', '93', '92'];
    const served = ['90', '80', '70', '60', '50', '40', '30', '20', '10', '0'];
    expect(types).to.have.members([...unserved, ...served, 'other']);
    expect(lines).to.include('distributary_downstream_requests_total{type="other",kind="subscribe"} 82');
  });

  it('a type of which a resource comes keeps its label, and leaves its place to another one', () => {
    const served = new Set<string>();
    const metrics = new Metrics((type) => served.has(type));
    const labels = (): string[] => [0, 8, 9].map((index) => metrics.typeLabel(other(index)));
    for (let index = 0; index < 8; index++) metrics.typeLabel(other(index));
    expect(labels()).to.deep.equal([other(0), 'other', 'other']);
    served.add(other(0));
    expect(labels()).to.deep.equal([other(0), other(8), 'other']);
  });

  it('take what is already called `other` for no type, so it leaves all places to types', () => {
    const metrics = new Metrics(() => false);
    const labels = [typeUrl('other'), ...[0, 1, 2, 3, 4, 5, 6, 7].map(other)].map(metrics.typeLabel);
    expect(labels).to.deep.equal(['other', ...[0, 1, 2, 3, 4, 5, 6, 7].map(other)]);
  });

  it('tell no type apart whose URL is longer than a label should be', async () => {
    const metrics = new Metrics();
    metrics.count.requests(typeUrl(`type.googleapis.com/${'x'.repeat(100_000)}`), 'subscribe').inc();
    expect(samples(await metrics.text(), 'distributary_downstream_requests_total')).to.deep.equal([
      'distributary_downstream_requests_total{type="other",kind="subscribe"} 1',
    ]);
  });

  it('begin at 0 where it is known what can happen: increase() does not see a first increment', async () => {
    const metrics = new Metrics();
    metrics.count.updates('central', cds, 'accepted').inc();
    const lines = (await metrics.text()).split('\n');
    for (const line of [
      'upstream_updates_total{upstream="central",type="cds",result="rejected"} 0',
      'downstream_rejected_total{reason="stalled"} 0',
      'cache_evictions_total{reason="idle"} 0',
    ]) {
      expect(lines).to.include(`distributary_${line}`);
    }
  });

  it('add up the types that share the label "other" in gauges', async () => {
    const metrics = new Metrics();
    metrics.sampleFrom(() => ({
      cache_resources: Array.from({ length: 40 }, (_, index) => [1, other(index)]),
    }));
    const lines = samples(await metrics.text(), 'distributary_cache_resources');
    expect(lines).to.include('distributary_cache_resources{type="other"} 8');
  });

  it('escape what a type URL may hold', async () => {
    const metrics = new Metrics();
    metrics.count.requests(typeUrl('a/"\n\\'), 'ack').inc();
    const [line] = samples(await metrics.text(), 'distributary_downstream_requests_total');
    expect(line).to.equal(String.raw`distributary_downstream_requests_total{type="a/\" \\",kind="ack"} 1`);
  });

  it("include the process's and the event loop's when asked", async () => {
    const text = await new Metrics(undefined, { process: true }).text();
    expect(text).to.include('process_resident_memory_bytes').and.to.include('nodejs_eventloop_lag_seconds');
  });
});

describe('histograms', () => {
  it('equal those of prom-client', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.constantFrom('a', 'b'), fc.double({ min: 0, max: 10, noNaN: true }))),
        async (observations) => {
          const reference = new Registry();
          const shape = { name: 'h', help: 'help', buckets: [0.1, 1, 5] };
          const family = new Family(() => new Distribution(shape.buckets));
          const histogram = new Histogram({ ...shape, labelNames: ['type'], registers: [reference] });
          for (const [type, value] of [...observations, ['a', 1] as const, ['b', 5] as const]) {
            family.of(type).observe(value);
            histogram.observe({ type }, value);
          }
          const lines = (text: string) =>
            text.split('\n').map((line) => line.replace(/\{(le="[^"]*"),(.*)\}/, '{$2,$1}'));
          const values = bucketsOf('h', ['type'], family);
          const own = await formatSum([[{ name: 'h', help: 'help', type: 'histogram', values }]]);
          const [shown, expected] = [lines(own), lines(await reference.metrics())];
          expect(shown).to.have.members(expected);
        },
      ),
      { numRuns: 50 },
    );
  });
});

describe('a counter', () => {
  it('begins again where doubles would no longer add up small numbers', () => {
    const tally = new Tally();
    tally.inc(2 ** 53 - 2);
    tally.inc();
    expect(tally.value).to.equal(2 ** 53 - 1);
    tally.inc(5);
    tally.inc();
    expect(tally.value).to.equal(6);
  });
});
