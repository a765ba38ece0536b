import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Interest, transaction } from '../../src/model/transaction.ts';
import { jsonToBytes, messageName } from '../../src/wire/registry.ts';
import { put, type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const [cds, eds] = [type('cds'), type('eds')];
const wildcard = { key: 'w', upstream: 'test', role: 'wildcard' as const };
const named = { key: 'n', upstream: 'test', role: 'named' as const };

const interest = (of: typeof cds, selector: string): Interest => ({
  type: of,
  selector: resourceName(selector),
  parameters: NO_PARAMETERS,
});

function cluster(fields: Readonly<Record<string, unknown>>) {
  const bytes = jsonToBytes(messageName(cds), fields);
  if (!bytes.ok) throw new Error(bytes.error[0]?.message);
  const any = toBinary(AnySchema, create(AnySchema, { typeUrl: cds, value: bytes.value }));
  return { ...put(cds, String(fields['name']), ''), any };
}

/** Whether the endpoints `a` are kept for long when nobody subscribes to them. */
function keeps(
  clusters: readonly Readonly<Record<string, unknown>>[],
  { subscribed = '*', resolved = true } = {},
): boolean {
  const store = new Store({ clock: new VirtualClock(), ambiguous: () => {}, expiring: () => {} });
  const all = interest(cds, subscribed);
  const endpoints = interest(eds, 'a');
  store.addInterest(all);
  store.addInterest(endpoints);
  const holder = subscribed === '*' ? wildcard : named;
  const puts = clusters.map(cluster);
  store.apply(transaction({ holder, type: cds, puts, resolved: resolved ? [all] : [] }));
  store.apply(transaction({ holder: named, type: eds, puts: [put(eds, 'a', '1')], resolved: [endpoints] }));
  return store.contentOf(endpoints).hasContent;
}

describe('endpoints that nobody subscribes to are kept for idle_ttl', () => {
  const cases = [
    ['if a cluster has their name', [{ name: 'a' }], {}, true],
    [
      'if a cluster leads to them by service_name',
      [{ name: 'x', edsClusterConfig: { serviceName: 'a' } }],
      {},
      true,
    ],
    ['but not if no cluster leads to them', [{ name: 'b' }], {}, false],
    [
      'nor if the cluster of their name has others',
      [{ name: 'a', edsClusterConfig: { serviceName: 'b' } }],
      {},
      false,
    ],
    ['nor if there is no cluster at all', [], {}, false],
    ['while it is not known which clusters there are', [{ name: 'b' }], { resolved: false }, true],
    ['where clusters are subscribed by name', [{ name: 'b' }], { subscribed: 'b' }, true],
    ['where an extension may lead to them', [{ name: 'b', clusterType: { name: 'x' } }], {}, true],
  ] as const;
  for (const [name, clusters, how, kept] of cases) {
    it(name, () => {
      expect(keeps(clusters, how)).to.equal(kept);
    });
  }
});
