import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { InMemoryRelay, node, put, resources, type, when } from '../../support/in-memory-relay.ts';
import type { Subject, Trial } from '../subject.ts';

const someone = create(NodeSchema, {
  ...node({ env: 'prod', version: 'v1' }, [
    'xds.config.resource-in-sotw',
    'xds.config.supports-resource-ttl',
  ]),
  locality: { region: 'eu', zone: 'a' },
  userAgentName: 'envoy',
});
const locators = [
  { name: 'a', dynamicParameters: { env: 'prod' } },
  { name: '*', dynamicParameters: { env: 'test', version: 'v2' } },
];
const glob = 'xdstp://example.com/envoy.config.cluster.v3.Cluster/dir/*?b=2&a=1';
const errorDetail = { code: 13, message: 'rejected', details: [] };

function sotw(part: MessageInitShape<typeof DiscoveryRequestSchema>): Buffer {
  const message = create(DiscoveryRequestSchema, { typeUrl: type('cds'), node: someone, ...part });
  return Buffer.from(toBinary(DiscoveryRequestSchema, message));
}

function delta(part: MessageInitShape<typeof DeltaDiscoveryRequestSchema>): Buffer {
  const message = create(DeltaDiscoveryRequestSchema, { typeUrl: type('cds'), node: someone, ...part });
  return Buffer.from(toBinary(DeltaDiscoveryRequestSchema, message));
}

const corpora = {
  sotw: [
    sotw({}),
    sotw({ resourceNames: ['a', 'b', '*', glob] }),
    sotw({ resourceLocators: locators, typeUrl: type('eds') }),
    sotw({ resourceNames: ['a'], versionInfo: '1', responseNonce: '1', errorDetail }),
    sotw({ typeUrl: 'type.googleapis.com/unknown', resourceNames: ['x', ''] }),
  ],
  delta: [
    delta({}),
    delta({ resourceNamesSubscribe: ['a', 'b', '*', glob], resourceNamesUnsubscribe: ['b', '*'] }),
    delta({
      resourceLocatorsSubscribe: locators,
      resourceLocatorsUnsubscribe: locators,
      typeUrl: type('eds'),
    }),
    delta({ initialResourceVersions: { a: '1@0011223344556677', b: '' }, resourceNamesSubscribe: ['a'] }),
    delta({
      responseNonce: '1',
      errorDetail,
      resourceNamesSubscribe: ['route/host/alias'],
      typeUrl: type('vhds'),
    }),
  ],
};

/** Requests of clients, on streams of their own and after a well-formed one, beside a client that gets its updates. */
export function requests(protocol: 'sotw' | 'delta'): Subject {
  return { name: `${protocol} requests`, corpus: corpora[protocol], open: () => new RequestTrial(protocol) };
}

/** So often it is looked whether the other client gets an update. */
const updateEvery = 20;

class RequestTrial implements Trial {
  readonly #lab = new InMemoryRelay({ limits: { maxSubscriptions: 1000, maxNamesLength: 4 * 2 ** 20 } });
  readonly #good = this.#lab.delta();
  readonly #protocol: 'sotw' | 'delta';
  #count = 0;

  constructor(protocol: 'sotw' | 'delta') {
    this.#protocol = protocol;
    this.#lab.full('eds', { a: '1', b: '2' });
    const cds = type('cds');
    const puts = [
      put(cds, 'a', 'prod', { constraints: when({ env: 'prod' }), aliases: ['route/host/alias'] }),
      put(cds, 'a', 'test', { constraints: when({ env: 'test' }) }),
      put(cds, 'b', 'all'),
    ];
    this.#lab.says({ type: cds, puts });
    this.#good.send('lds', { resourceNamesSubscribe: ['good'] });
  }

  take(bytes: Buffer): void {
    const relay = this.#lab;
    const stranger = this.#protocol === 'sotw' ? relay.sotw() : relay.delta();
    if (this.#count % 2 === 0) stranger.send('cds', {});
    for (let again = 0; again < 2 && stranger.status === undefined; again++) stranger.raw(bytes);
    stranger.disconnect();
    if (++this.#count % updateEvery === 0) this.#update();
  }

  #update(): void {
    const lds = type('lds');
    const content = String(this.#count);
    this.#lab.says({ type: lds, puts: [put(lds, 'good', content)] });
    const last = this.#good.received().at(-1);
    if (last === undefined || resources(last)['good'] !== content) {
      throw new Error('another client did not get its update');
    }
    this.#good.ack('lds', last);
  }

  settle(): void {
    this.#lab.clock.advance(3_600_000);
    this.#lab.settle();
    this.#lab.events.length = 0;
    this.#lab.evicted.length = 0;
    this.#lab.ambiguous.length = 0;
    this.#lab.upstream.journal.length = 0;
  }
}
