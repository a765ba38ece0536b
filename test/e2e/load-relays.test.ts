import { expect } from 'chai';
import { cases, longTest } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { LoadPlane, LoadReporter } from './support/load-plane.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';

const intervalMs = 1000;
const parameters = [{ key: 'env', from: 'node.metadata.env', default: 'prod' }];

/** Clients of relays. Of their requests 30 percent fail while they have version 2, and they say so once in an interval. */
class Fleet implements Disposable {
  readonly #clients: readonly {
    readonly xds: RecordingClient;
    readonly load: LoadReporter;
    issued: number;
    failed: number;
    reportsAt: number;
  }[];
  readonly #pools: readonly ClientPool[];
  readonly #timer: NodeJS.Timeout;

  constructor(relays: readonly RelayProcess[], each: number) {
    this.#pools = relays.map(({ xds }) => new ClientPool(xds, 2));
    this.#clients = relays.flatMap((relay, at) =>
      Array.from({ length: each }, (_, client) => {
        const id = `client-${at}-${client}`;
        const xds = this.#pools[at]?.open('delta', id) ?? expect.fail();
        xds.subscribe('cds');
        const reportsAt = performance.now() + (client * intervalMs) / each;
        return { xds, load: new LoadReporter(relay.xds, id), issued: 0, failed: 0, reportsAt };
      }),
    );
    this.#timer = setInterval(() => this.#work(), 20);
  }

  /** How many clients have this version. */
  with(version: string): number {
    return this.#clients.filter(({ xds }) => xds.has('cds')['a'] === version).length;
  }

  #work(): void {
    const now = performance.now();
    for (const client of this.#clients) {
      client.issued += 10;
      if (client.xds.has('cds')['a'] === '2') client.failed += 3;
      if (now < client.reportsAt || client.load.told.length === 0) continue;
      client.reportsAt = now + intervalMs;
      client.load.report('shop', client.issued, 0, client.failed);
      client.issued = 0;
      client.failed = 0;
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const { load } of this.#clients) load[Symbol.dispose]();
    for (const pool of this.#pools) pool[Symbol.dispose]();
  }
}

describe('a rollout judged by what relays below report', function () {
  this.timeout(180_000);

  let plane: ModelPlane;

  before(async () => {
    plane = await ModelPlane.start();
  });

  after(() => plane?.[Symbol.asyncDispose]());

  const central = (bake: string): Promise<RelayProcess> => {
    plane.set('cds', { a: '1' });
    return RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] }, load_reports: 'OFF' }],
      parameters,
      rollout: {
        canary: { percent: 0.01 },
        bake,
        traffic: { interval: `${intervalMs}ms`, max_error_increase: 10 },
      },
    });
  };

  const below = (upper: RelayProcess, id: string, variants: string, more: object): Promise<RelayProcess> =>
    RelayProcess.start({
      node: { id, cluster: 'relays' },
      upstreams: [{ name: 'upper', ads: { endpoints: [upper.xds], variants } }],
      parameters,
      ...more,
    });

  for (const [variants, workers] of [['PER_PARAMETERS', 2] as const, ['NATIVE', 0] as const])
    longTest(
      `${variants}, workers ${workers}: a bad change is found, and the good one after it is not held for what was said before`,
      async () => {
        await using upper = await central('7s');
        await using a = await below(upper, 'a', variants, { workers });
        await using b = await below(upper, 'b', variants, { workers });
        using fleet = new Fleet([a, b], 1);
        await eventually(() => expect(fleet.with('1')).to.equal(2));
        await eventually(async () => {
          expect(await upper.metric('load_requests_total', 'outcome="success"')).to.be.above(2000);
        });
        plane.set('cds', { a: '2' });
        const held = await reaches(upper, 'HELD');
        expect(held.cause).to.equal('traffic');
        expect([fleet.with('1'), fleet.with('2')]).to.deep.equal([1, 1]);
        plane.set('cds', { a: '3' });
        await eventually(() => expect(fleet.with('3')).to.equal(2));
        await reaches(upper, 'IDLE');
      },
    );

  it('a relay that has a rollout of its own says nothing of the change before all of its clients have it', async () => {
    await using upper = await central('60s');
    const manual = { canary: { percent: 0.01 }, mode: 'MANUAL' };
    await using lower = await below(upper, 'lower', 'NATIVE', { rollout: manual });
    using fleet = new Fleet([lower], 4);
    await eventually(() => expect(fleet.with('1')).to.equal(4));
    await eventually(async () => {
      expect(await upper.metric('load_requests_total', 'outcome="success"')).to.be.above(4000);
    });
    plane.set('cds', { a: '2' });
    await eventually(async () => {
      expect(await upper.metric('load_requests_total', 'outcome="error"')).to.be.above(600);
    });
    const { state, traffic } = await rolloutOf(upper);
    expect([state, traffic?.state]).to.deep.equal(['CANARY', 'UNKNOWN']);
    expect(traffic?.reason).to.match(/^only relays that hold something back have accepted it/);
    await operate(upper, 'Promote');
    await reaches(upper, 'IDLE');
    expect(fleet.with('2'), 'the canary of the lower relay').to.equal(1);
    // What comes now is judged here, when the lower relay has given it to everybody.
    await operate(lower, 'Discard');
    await eventually(() => expect(fleet.with('1')).to.equal(4));
    plane.set('cds', { a: '3' });
    await eventually(() => expect(fleet.with('3')).to.equal(1));
    await operate(lower, 'Release');
    await eventually(() => expect(fleet.with('3')).to.equal(4));
    await eventually(async () => {
      const { traffic: said } = await rolloutOf(upper);
      expect(said?.state).to.equal('GOOD');
    });
  });
});

for (const workers of cases(2, 0))
  it(`load reports over two relays, workers ${workers}: each request counts once, and the sums say how often they were added up`, async () => {
    await using plane = await new LoadPlane({
      sendAllClusters: true,
      loadReportingInterval: { nanos: 200_000_000 },
    }).listen();
    const start = (id: string, address: string): Promise<RelayProcess> =>
      RelayProcess.start({
        node: { id, cluster: 'relays' },
        upstreams: [{ name: 'up', ads: { endpoints: [address] } }],
        parameters,
        workers,
      });
    await using upper = await start('upper', plane.address);
    await using a = await start('a', upper.xds);
    await using b = await start('b', upper.xds);
    const reporters = [a, b].flatMap(({ xds }) =>
      ['test', 'prod'].map((env) => new LoadReporter(xds, env, { env })),
    );
    await eventually(() => {
      for (const { told } of reporters) expect(told).to.have.lengthOf(1);
    });
    for (let round = 0; round < 30; round++) {
      for (const [at, each] of reporters.entries()) each.report('shop', 10 ** at, 1);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await eventually(() => expect(plane.issued('shop')).to.equal(30 * 1111));
    const features = (): readonly string[] =>
      plane.open.flatMap(({ requests }) => requests.flatMap(({ node }) => node?.clientFeatures ?? []));
    const stages = workers === 0 ? 2 : 4;
    await eventually(() => expect(features()).to.include(`distributary.load-stages.${stages}`));
    for (const one of reporters) one[Symbol.dispose]();
    await eventually(() => expect(plane.open).to.have.lengthOf(0));
    expect(plane.issued('shop')).to.equal(30 * 1111);
  });
