import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { LoadReporter } from './support/load-plane.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { reaches, rolloutOf } from './support/rollout-state.ts';
import { Webhook } from './support/webhook.ts';

/** What becomes of 200 requests in each interval at a client that has this version. */
interface Effect {
  readonly issued: number;
  readonly failed: number;
}

const usual: Effect = { issued: 200, failed: 2 };
const names = ['n1', 'n2', 'n3', 'n4'];

/** Clients that report as often as they are asked to, and fare as the version that they have makes them. */
class Fleet implements Disposable {
  readonly effects = new Map<string, Effect>();
  readonly #clients: { readonly xds: RecordingClient; readonly load: LoadReporter; version: string }[];
  readonly #timer: NodeJS.Timeout;

  constructor(relay: RelayProcess, pool: ClientPool) {
    this.#clients = names.map((id) => {
      const xds = pool.open('delta', id);
      xds.subscribe('cds');
      return { xds, load: new LoadReporter(relay.xds, id), version: '' };
    });
    this.#timer = setInterval(() => {
      for (const client of this.#clients) {
        if (client.load.told.length === 0) continue;
        client.version = client.xds.has('cds')['a'] ?? client.version;
        const { issued, failed } = this.effects.get(client.version) ?? usual;
        client.load.report('shop', issued, 0, failed);
      }
    }, 100);
  }

  get reporters(): readonly LoadReporter[] {
    return this.#clients.map(({ load }) => load);
  }

  /** Who has this version. */
  with(version: string): number {
    return this.#clients.filter(({ xds }) => xds.has('cds')['a'] === version).length;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const { load } of this.#clients) load[Symbol.dispose]();
  }
}

for (const workers of cases(2, 0)) {
  describe(`a rollout judged by traffic, workers: ${workers}`, () => {
    let plane: ModelPlane;

    before(async () => {
      plane = await ModelPlane.start();
    });

    after(() => plane?.[Symbol.asyncDispose]());

    async function start(rollout: object): Promise<RelayProcess> {
      plane.set('cds', { a: '1' });
      return RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] }, load_reports: 'OFF' }],
        rollout: {
          canary: { percent: 0.01 },
          bake: '2s',
          traffic: { interval: '100ms' },
          ...rollout,
        },
        workers,
      });
    }

    it('a good change goes on, and clients are asked for all clusters though no control plane asks', async () => {
      await using relay = await start({ bake: '4s' });
      using pool = new ClientPool(relay.xds, workers + 1);
      using fleet = new Fleet(relay, pool);
      await eventually(() => expect(fleet.with('1')).to.equal(4));
      await eventually(() => {
        for (const { told } of fleet.reporters) expect(told[0]?.sendAllClusters).to.equal(true);
      });
      plane.set('cds', { a: '2' });
      await eventually(async () => {
        const { traffic } = await rolloutOf(relay);
        expect(traffic?.state).to.equal('GOOD');
        expect(traffic?.canaries.requests).to.be.at.least(200);
        expect(traffic?.others.requests).to.be.at.least(400);
      });
      await eventually(() => expect(fleet.with('2')).to.equal(4));
      await reaches(relay, 'IDLE');
      expect(await relay.metric('load_requests_total', 'outcome="error"')).to.be.above(0);
      const received = 'direction="received",upstream="central"';
      expect(await relay.metric('load_reports_total', received)).to.be.above(0);
      expect(await relay.metric('load_reports_total', 'direction="sent"')).to.equal(0);
    });

    for (const [what, effect, reason] of [
      ['more requests fail', { issued: 200, failed: 60 }, /^traffic: \d+\.\d % of \d+ requests failed/],
      [
        'no requests come',
        { issued: 0, failed: 0 },
        /^traffic: [\d.]+ requests a second .* max_request_drop is 50 percent$/,
      ],
    ] as const) {
      it(`${what}: it is held with the cause traffic, and what upstream says next goes on`, async () => {
        await using relay = await start({});
        using pool = new ClientPool(relay.xds, workers + 1);
        using fleet = new Fleet(relay, pool);
        await eventually(() => expect(fleet.with('1')).to.equal(4));
        fleet.effects.set('2', effect);
        plane.set('cds', { a: '2' });
        const held = await reaches(relay, 'HELD');
        expect(held.cause).to.equal('traffic');
        expect(held.reason).to.match(reason);
        expect(held.traffic?.state).to.equal('BAD');
        expect(fleet.with('2')).to.equal(1);
        let next = 3;
        plane.set('cds', { a: `${next}` });
        await eventually(async () => {
          expect(fleet.with(`${next}`)).to.be.at.least(1);
          // While this process stands still, its canary has no requests.
          const { state } = await rolloutOf(relay);
          if (state === 'HELD') plane.set('cds', { a: `${++next}` });
          expect(fleet.with(`${next}`)).to.equal(4);
        });
      });
    }

    it('on_failure: DISCARD: the canaries go back, and it counts as failed_traffic', async () => {
      using hook = await Webhook.start();
      await using relay = await start({ on_failure: 'DISCARD', notify: [{ url: hook.url }] });
      using pool = new ClientPool(relay.xds, workers + 1);
      using fleet = new Fleet(relay, pool);
      await eventually(() => expect(fleet.with('1')).to.equal(4));
      fleet.effects.set('2', { issued: 200, failed: 100 });
      plane.set('cds', { a: '2' });
      await eventually(async () => {
        expect(await relay.metric('rollouts_total', 'result="failed_traffic"')).to.equal(1);
      });
      await eventually(() => expect(fleet.with('1')).to.equal(4));
      const { state, cause } = await rolloutOf(relay);
      expect([state, cause]).to.deep.equal(['IDLE', 'traffic']);
      await eventually(() => expect(hook.told).to.have.lengthOf(1));
      const { text, ...told } = JSON.parse(hook.told[0] ?? '') as Record<string, unknown>;
      expect(told).to.include({ event: 'DISCARDED', cause: 'traffic', count: 1 });
      expect(told).to.deep.include({ upstreams: ['central'], types: ['cds'], names: ['a'] });
      // Where a worker is late, reports of before are among those that count.
      expect(text).to.match(/: a change of central \(cds: a\) was discarded: traffic: \d+\.\d % of /);
    });

    it('where all of a class have it, they are compared with themselves before', async () => {
      await using relay = await start({
        canary: undefined,
        waves: [{ percent: 1 }, { percent: 100, bake: '8s' }],
        bake: '500ms',
        traffic: { interval: '100ms', min_requests: 1000 },
      });
      using pool = new ClientPool(relay.xds, workers + 1);
      using fleet = new Fleet(relay, pool);
      await eventually(() => expect(fleet.with('1')).to.equal(4));
      await eventually(async () => {
        expect(await relay.metric('load_requests_total', 'outcome="success"')).to.be.above(10_000);
      });
      plane.set('cds', { a: '2' });
      await eventually(() => expect(fleet.with('2')).to.equal(4));
      fleet.effects.set('2', { issued: 200, failed: 100 });
      const held = await reaches(relay, 'HELD');
      expect([held.cause, held.wave]).to.deep.equal(['traffic', 2]);
      expect(held.reason).to.match(/before: max_error_increase is 5 points$/);
    });
  });
}
