import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { checkCurrent } from './support/relay-state.ts';

const count = 1000;
const clusters = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`c${at}`, '1']));
const names = Object.keys(clusters);

describe(`a storm: ${count} clients reconnect at once after a restart, while upstream is away`, function () {
  this.timeout(60_000);

  it('upstream hears of each interest once; nobody is sent again what it has (delta; SotW with CONTENT)', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', clusters);
    plane.set('eds', clusters);
    using directory = temporaryDirectory();
    const config = {
      upstreams: [
        { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '50ms' } } },
      ],
      xds: { sotw_versions: 'CONTENT' },
      cache: { persistence: { path: directory.path } },
      drain_timeout: '200ms',
    };
    const first = await RelayProcess.start(config);
    const before: RecordingClient[] = [];
    using pool = new ClientPool(first.xds, 20);
    for (let at = 0; at < count; at++) before.push(join(pool, at));
    for (const client of before) await client.gets('cds', clusters);
    expect(await first.stop()).to.equal(0);
    pool[Symbol.dispose]();
    plane.kill();

    await using second = await RelayProcess.start(config);
    expect((await second.get('/ready')).status).to.equal(200);
    using again = new ClientPool(second.xds, 20);
    const after = before.map((client, at) => join(again, at, client));
    await eventually(async () => expect(await second.metric('downstream_streams')).to.equal(count));
    const asked = plane.requests.length;
    await plane.again();
    await eventually(() => checkCurrent(second));
    plane.set('cds', { ...clusters, last: '1' });
    await eventually(
      () => {
        for (const client of after) expect(client.has('cds')).to.include({ last: '1' });
      },
      { timeout: 30_000 },
    );
    for (const { protocol, said, status } of after) {
      expect(status).to.equal(undefined);
      const cds = said.filter(({ type }) => type === 'cds');
      const resources = cds.flatMap((one) => [...one.resources.keys()]);
      if (protocol === 'delta') expect(resources).to.deep.equal(['last']);
      else expect(cds, 'only the change').to.have.length(1);
    }
    // What clients ask for is one wildcard, and the names of endpoints.
    const subscribed = plane.requests.slice(asked).flatMap((request) => {
      if (!('resourceNamesSubscribe' in request)) return [];
      return request.resourceNamesSubscribe.map((name) => `${request.typeUrl} ${name}`);
    });
    expect(new Set(subscribed).size).to.equal(subscribed.length);
    expect(subscribed.length).to.be.at.most(names.length + 1);
    expect(plane.openStreams).to.be.at.most(2);
  });
});

function join(pool: ClientPool, at: number, from?: RecordingClient): RecordingClient {
  const client = pool.open(at % 2 === 0 ? 'delta' : 'sotw', `client-${at}`);
  client.subscribe('cds', [], from);
  if (at % 10 === 0) client.subscribe('eds', [names[at % names.length] ?? ''], from);
  return client;
}
