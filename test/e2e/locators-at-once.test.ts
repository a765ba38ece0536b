import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { typeUrl } from '../../src/model/brand.ts';
import { Random } from '../support/random.ts';
import { type AdsStream, ControlPlane, type Request } from '../upstream/ads/control-plane.ts';
import { contentOf } from '../upstream/ads/responses.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess } from './support/relay.ts';
import { Connections } from './support/variant-client.ts';

const collection = 'xdstp://x/envoy.config.cluster.v3.Cluster/dir';
const spellings = ['b=2&a=1', 'a=1&b=2'];

/** What is under a name for those without parameters, and with env=prod: constraints and content. */
interface World {
  readonly plain: string;
  readonly prod: string;
  /** Each answer has a version of its own. */
  readonly numbered?: true;
  /** What the clients with env=prod have in the end. */
  readonly holds: readonly string[];
}

const worlds: Readonly<Record<string, World>> = {
  'one for all': { plain: ':all', prod: ':all', holds: ['all'] },
  'one for all, and each answer has a version of its own': {
    plain: ':all',
    prod: ':all',
    numbered: true,
    holds: ['all'],
  },
  variants: { plain: '{!env}:none', prod: '{env=prod}:prod', holds: ['prod'] },
  // No control plane should: both match env=prod.
  'one for all, and another for prod': { plain: ':all', prod: '{env=prod}:prod', holds: ['all', 'prod'] },
};

/** Answers each subscription on its own, under the name as it was asked for. */
function answerEach({ plain, prod, numbered }: World): (stream: AdsStream, request: Request) => void {
  let answers = 0;
  return (stream, request) => {
    if (!('resourceNamesSubscribe' in request)) return;
    const answer = (selector: string, item: string): void => {
      const version = numbered === undefined ? '1' : String(++answers);
      stream.send(typeUrl(request.typeUrl), version, `${selector.replace('*', 'm')}${item}@${version}`);
    };
    for (const name of request.resourceNamesSubscribe) answer(name, plain);
    for (const { name } of request.resourceLocatorsSubscribe) answer(name, prod);
  };
}

describe('many clients of globs and names at once, by TP2 and without', () => {
  for (const [what, world] of Object.entries(worlds)) {
    for (const seed of [1, 2, 3, 4]) {
      it(`5b.12 ${what}: everybody is answered, on the first stream (order ${seed})`, async () => {
        const random = new Random(seed);
        const plane = await new ControlPlane().listen();
        plane.answer = answerEach(world);
        try {
          await using relay = await RelayProcess.start({
            upstreams: [
              {
                name: 'central',
                // What is not recognised as answered is so for longer than this test.
                ads: { endpoints: [`127.0.0.1:${plane.port}`], variants: 'NATIVE', resource_timeout: '1h' },
              },
            ],
            drain_timeout: '100ms',
          });
          using connections = new Connections(relay.xds, 4);
          const kinds = (['sotw', 'delta'] as const).flatMap((protocol) =>
            [false, true].flatMap((located) =>
              spellings.map((requestedName) => ({ protocol, located, requestedName, place: random.next() })),
            ),
          );
          const opened = [];
          for (const { protocol, located, requestedName } of kinds.toSorted((a, b) => a.place - b.place)) {
            const client = connections.open({ protocol, content: (any) => contentOf(any?.value) });
            const names = [`${collection}/*?${requestedName}`, 'public'];
            const locators = Object.fromEntries(names.map((name) => [name, { env: 'prod' }]));
            client.want('cds', located ? { locators } : { names });
            opened.push({ client, located });
            if (random.chance(0.6)) await sleep(random.below(6));
          }
          for (const { client, located } of opened) {
            await eventually(() => {
              const contents = client.has('cds').map((line) => line.slice(line.lastIndexOf(': ') + 2));
              expect(contents).to.have.length(2);
              const holds = located ? world.holds : [world.plain.slice(world.plain.indexOf(':') + 1)];
              expect(holds).to.include.members(contents);
            });
          }
          expect(plane.streams).to.have.length(1);
        } finally {
          plane.kill();
        }
      });
    }
  }
});
