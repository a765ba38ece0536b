import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import {
  ControlPlane,
  type ControlPlaneOptions,
  controlPlaneBinary,
  olderControlPlaneBinary,
} from './support/controlplane.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { apiListener, CLUSTER, cluster, endpoints } from './support/resources.ts';
import { need } from './support/skip.ts';
import { XdsClient } from './support/xds-client.ts';

const site = [apiListener('web', 'r'), apiListener('kept', 'r'), endpoints('c', 1), endpoints('k', 1)];
const all = { lds: ['web', 'kept'], eds: ['c', 'k'] } as const;
const returning = { lds: ['web'], eds: ['c'] } as const;
const types = ['lds', 'eds'] as const;

const expectAll = (
  client: XdsClient,
  asked: Readonly<Record<'lds' | 'eds', readonly string[]>>,
): Promise<void> =>
  eventually(() => {
    for (const type of types) {
      const got = client.of(type);
      expect(got.reduce((sum, { resources }) => sum + resources, 0)).to.equal(asked[type].length);
      expect(got.flatMap(({ removed }) => removed)).to.deep.equal([]);
    }
  });

const versions = [
  ['0.13.4', olderControlPlaneBinary],
  ['0.14', controlPlaneBinary],
] as const;

/** What the control plane was asked for endpoints on its SotW streams. */
const askedForEndpoints = async (plane: ControlPlane) =>
  (await plane.stats()).requests.filter(({ type }) => type.endsWith('.ClusterLoadAssignment'));

describe('names that clients left and come back to', () => {
  for (const [version, binary] of versions) {
    for (const protocol of ['DELTA', 'SOTW'] as const) {
      for (const cache of cases<ControlPlaneOptions['cache']>('snapshot', 'linear')) {
        it(`are there again soon, on streams that others need (go-control-plane ${version}, ${protocol}, ${cache})`, async function () {
          await using plane = await ControlPlane.start(await need(this, binary()), { cache });
          await plane.set(site);
          await using relay = await RelayProcess.start({
            drain_timeout: '100ms',
            upstreams: [upstream(plane.address, protocol, { resource_timeout: '60s' })],
            cache: { idle_ttl: '1s' },
          });
          await using keeper = new XdsClient(relay.xds, 'delta');
          for (const type of types) keeper.subscribe(type, all[type]);
          await expectAll(keeper, all);
          for (const type of types) keeper.delta(type, { resourceNamesUnsubscribe: [...returning[type]] });
          await eventually(async () => {
            const { requests } = await plane.stats();
            for (const type of types) {
              const [left = '', kept = ''] = all[type];
              const last = requests.findLast(({ names }) => names.includes(kept));
              const isLeft = requests.some(({ unsubscribe }) => unsubscribe.includes(left));
              expect(protocol === 'DELTA' ? isLeft : last?.names.includes(left) === false).to.equal(true);
            }
          });

          await using visitor = new XdsClient(relay.xds, 'delta');
          for (const type of types) visitor.subscribe(type, returning[type]);
          await expectAll(visitor, returning);
          await expectAll(keeper, all);
        });

        it(`a wildcard is whole again, also long after (go-control-plane ${version}, ${protocol}, ${cache})`, async function () {
          await using plane = await ControlPlane.start(await need(this, binary()), { cache });
          const kept = [endpoints('a', 1), cluster('b')];
          await plane.set([cluster('a'), ...kept]);
          await using relay = await RelayProcess.start({
            drain_timeout: '100ms',
            upstreams: [upstream(plane.address, protocol, { resource_timeout: '2s' })],
            cache: { idle_ttl: '1s' },
          });
          await using keeper = new XdsClient(relay.xds, 'delta');
          keeper.subscribe('eds', ['a']);
          await keeper.gets('eds');
          {
            await using first = new XdsClient(relay.xds, 'delta');
            first.subscribe('cds');
            expect((await first.gets('cds')).resources).to.equal(2);
          }
          await eventually(async () => {
            const { requests } = await plane.stats();
            const named = requests.filter(({ type }) => type === CLUSTER);
            const isLeft = named.some(({ unsubscribe }) => unsubscribe.includes('*'));
            const isEmptied =
              named.some(({ names }) => names.includes('*')) && named.at(-1)?.names.length === 0;
            expect(protocol === 'DELTA' ? isLeft : isEmptied).to.equal(true);
          });
          await sleep(3000);
          await plane.set([cluster('a', 'grpc'), ...kept]);

          await using visitor = new XdsClient(relay.xds, 'delta');
          visitor.subscribe('cds');
          expect((await visitor.gets('cds')).resources).to.equal(2);
          expect(keeper.of('eds').flatMap(({ removed }) => removed)).to.deep.equal([]);
        });
      }
    }
  }

  for (const [version, binary] of versions) {
    it(`cost one response for each change upstream while nobody has them (go-control-plane ${version}, SOTW)`, async function () {
      await using plane = await ControlPlane.start(await need(this, binary()), { cache: 'snapshot' });
      await plane.set(site);
      await using relay = await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(plane.address, 'SOTW', { resource_timeout: '60s' })],
        cache: { idle_ttl: '1s' },
      });
      await using keeper = new XdsClient(relay.xds, 'delta');
      keeper.subscribe('lds', all.lds);
      {
        await using left = new XdsClient(relay.xds, 'delta');
        left.subscribe('eds', ['c']);
        await eventually(() => expect(left.of('eds')).to.have.length(1));
      }
      await eventually(async () => expect((await askedForEndpoints(plane)).at(-1)?.names).to.deep.equal([]));
      const before = (await askedForEndpoints(plane)).length;
      await plane.set(site);
      await eventually(async () => {
        const last = (await askedForEndpoints(plane)).at(-1);
        expect([last?.names, last?.version, last?.nack]).to.deep.equal([[], '2', false]);
      });
      await sleep(500);
      expect(await askedForEndpoints(plane)).to.have.length(before + 1);

      await using visitor = new XdsClient(relay.xds, 'delta');
      // It has come before, for nobody, and was never held.
      visitor.subscribe('eds', ['k']);
      await eventually(() =>
        expect(visitor.of('eds').reduce((sum, { resources }) => sum + resources, 0)).to.equal(1),
      );
    });

    it(`cost one response if nobody ever had an answer (go-control-plane ${version}, SOTW, ads: true)`, async function () {
      await using plane = await ControlPlane.start(await need(this, binary()), {
        cache: 'snapshot',
        ordered: true,
      });
      await plane.set(site);
      await using relay = await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(plane.address, 'SOTW')],
        cache: { idle_ttl: '1s' },
      });
      await using keeper = new XdsClient(relay.xds, 'delta');
      keeper.subscribe('lds', all.lds);
      {
        await using left = new XdsClient(relay.xds, 'delta');
        left.subscribe('eds', ['invented']);
        await eventually(async () => expect(await askedForEndpoints(plane)).to.have.length(1));
      }
      // The name, the empty list, and the answer to what means everything there.
      await eventually(async () => expect((await askedForEndpoints(plane)).at(-1)?.version).to.equal('1'));
      await sleep(500);
      expect((await askedForEndpoints(plane)).map(({ names }) => names)).to.deep.equal([
        ['invented'],
        [],
        [],
      ]);
    });
  }
});
