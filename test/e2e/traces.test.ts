import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { send } from './support/http.ts';
import { ModelPlane } from './support/model-plane.ts';
import { type CollectedSpan, OtlpCollector } from './support/otlp-collector.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';

const central = (plane: ModelPlane): object => ({ name: 'central', ads: { endpoints: [plane.address] } });

describe('traces of updates', () => {
  it('received, judged, applied, composed per class, handed over, answered: parts of one trace', async () => {
    await using collector = await OtlpCollector.start();
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [central(plane)],
      tracing: { otlp_endpoint: collector.url, ratio: 1 },
    });
    using pool = new ClientPool(relay.xds, 3);
    // Two classes: SotW and delta share a view, and not a response.
    const clients = [pool.open('delta'), pool.open('delta'), pool.open('sotw')];
    for (const client of clients) {
      client.subscribe('cds');
      await eventually(() => expect(client.has('cds')).to.deep.equal({ a: '1' }));
    }
    await relay.get('/ready');
    plane.set('cds', { a: '2' });
    const root = await eventually(() => {
      const [found] = collector.roots('update', { subscribers: 3, type: 'cds', end: 'answered' });
      if (found === undefined) throw new Error('no trace yet');
      return found;
    });
    expect(Object.fromEntries(root.attributes)).to.include({
      'distributary.upstream': 'central',
      'distributary.handed_over': 3,
      'distributary.accepted': 3,
      'distributary.rejected': 0,
      'distributary.composed': 2,
    });
    expect(Object.fromEntries(root.resource)).to.include({
      'service.name': 'distributary',
      'service.instance.id': 'relay',
    });
    const parts = collector.below(root);
    const named = (name: string): readonly CollectedSpan[] => parts.filter((part) => part.name === name);
    const counts = ['judge', 'apply', 'compose', 'hand over', 'answer'].map((name) => named(name).length);
    expect(counts).to.deep.equal([1, 1, 2, 1, 1]);
    for (const part of parts) {
      expect(part.from >= root.from && part.until <= root.until, part.name).to.be.true;
    }
    expect(named('judge')[0]?.from).to.equal(root.from);
    expect(named('answer')[0]?.until).to.equal(root.until);
    expect(Number(root.from / 1_000_000n)).to.be.closeTo(Date.now(), 60_000);
  });

  it('a password of the collector is in no line of the log, nor on the page', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [central(plane)],
      node: { id: 'relay', cluster: 'relays', metadata: { url: 'https://me:hush@x' } },
      tracing: { otlp_endpoint: 'http://me:hu"sh@127.0.0.1:1/', ratio: 1 },
    });
    using pool = new ClientPool(relay.xds, 1);
    pool.open('delta').subscribe('cds');
    await eventually(() => {
      const line = relay.log.find(({ message }) => message === 'the OTLP collector does not accept traces');
      expect(line?.['endpoint']).to.equal('http://[redacted]@127.0.0.1:1/');
    });
    const shown = await Promise.all(['/', '/config_dump'].map(async (path) => (await relay.get(path)).body));
    for (const text of [...relay.logged, ...shown]) expect(text).not.to.match(/hush|hu.{0,6}sh@|\/me:/);
    expect(shown[0]).to.include('[redacted]@127.0.0.1');
    relay.configure({
      upstreams: [central(plane)],
      tracing: { otlp_endpoint: 'http://me:hu/sh@a@127.0.0.1' },
    });
    await eventually(() => expect(relay.logged.join()).to.include('is not the URL of an OTLP collector'));
    expect(relay.logged.join()).to.include('http://[redacted]@127.0.0.1').and.not.include('hu/sh');
  });

  it('with workers: of the primary, whose clients are the workers, and of each worker', async () => {
    await using collector = await OtlpCollector.start();
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [central(plane)],
      workers: 1,
      tracing: { otlp_endpoint: collector.url, ratio: 1 },
    });
    using pool = new ClientPool(relay.xds, 1);
    const client = pool.open('delta');
    client.subscribe('cds');
    await eventually(() => expect(client.has('cds')).to.deep.equal({ a: '1' }));
    plane.set('cds', { a: '2' });
    await eventually(() => {
      const answered = collector.roots('update', { accepted: 1, end: 'answered', type: 'cds' });
      const processes = answered.map(({ resource }) => resource.get('service.instance.id'));
      expect(processes).to.include.members(['relay', 'relay/worker-1']);
    });
  });

  it('a poll with a traceparent is a part of its trace; without one it has none', async () => {
    await using collector = await OtlpCollector.start();
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [central(plane)],
      rest: {},
      tracing: { otlp_endpoint: collector.url, ratio: 0 },
    });
    const [traceId, parentId] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'];
    const poll = (headers: Readonly<Record<string, string>>) =>
      send(
        'POST',
        `http://${relay.rest}/v3/discovery:clusters`,
        '{"node":{"id":"a"}}',
        'application/json',
        headers,
      );
    await poll({ traceparent: 'nonsense' });
    await poll({});
    await eventually(async () => {
      expect((await poll({ traceparent: `00-${traceId}-${parentId}-01` })).status).to.equal(200);
    });
    const span = await eventually(() => {
      const found = collector.spans.find(
        ({ attributes }) => attributes.get('http.response.status_code') === 200,
      );
      if (found === undefined) throw new Error('no span yet');
      return found;
    });
    expect(span).to.include({ name: 'poll', traceId, parentId });
    expect(new Set(collector.spans.map((one) => one.traceId))).to.deep.equal(new Set([traceId]));
  });

  it('a collector that is away is one line in the log, and changes nothing for clients', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    const relay = await RelayProcess.start({
      upstreams: [central(plane)],
      // Nothing listens on port 1.
      tracing: { otlp_endpoint: 'http://127.0.0.1:1', ratio: 1 },
    });
    try {
      using pool = new ClientPool(relay.xds, 1);
      const client = pool.open('delta');
      client.subscribe('cds');
      for (const content of ['2', '3', '4']) {
        plane.set('cds', { a: content });
        await eventually(() => expect(client.has('cds')).to.deep.equal({ a: content }));
      }
      const away = () => relay.log.filter(({ message }) => message.includes('the OTLP collector'));
      await eventually(() => expect(away()).to.have.length(1));
      expect(away()[0]).to.include({ level: 'warn', endpoint: 'http://127.0.0.1:1' });
    } finally {
      expect(await relay.stop()).to.equal(0);
    }
  });
});
