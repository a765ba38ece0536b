import { create, toBinary, toJson } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { DiscoveryResponseSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { systemClock } from '../../src/model/clock.ts';
import { atOnce, Pace } from '../../src/model/time-slices.ts';
import { type JsonForm, JsonInTurns, JsonText, messageText } from '../../src/wire/json-in-turns.ts';
import { envoyRegistry, jsonToBytes, messageName } from '../../src/wire/registry.ts';

const api = 'type.googleapis.com/envoy';

const typed = (typeUrl: string, json: object): Any => {
  const bytes = jsonToBytes(messageName(typeUrl), json);
  if (!bytes.ok) throw new Error(bytes.error[0]?.message);
  return create(AnySchema, { typeUrl, value: bytes.value });
};

/** By protobuf's own writer. */
const whole = (any: Any, { useProtoFieldName = false }: JsonForm = {}): unknown =>
  toJson(AnySchema, any, { registry: envoyRegistry(), useProtoFieldName });

/** Written in steps of so many bytes. */
function inTurns(any: Any, bytes: number, form: JsonForm = {}): unknown {
  const text = new JsonText();
  atOnce(new JsonInTurns(text, form, bytes).any(any));
  const written = Buffer.concat(text.parts);
  expect(text.bytes).to.equal(written.length);
  return JSON.parse(written.toString());
}

const endpoints = (count: number) =>
  Array.from({ length: count }, (_, at) => ({
    endpoint: {
      address: { socket_address: { address: `10.0.0.${at}`, port_value: 80 } },
      additional_addresses: at % 3 === 0 ? [{ address: { pipe: { path: '/ä' } } }] : [],
    },
    health_status: at % 2 === 0 ? 'HEALTHY' : 'UNHEALTHY',
    metadata: { filter_metadata: { [`key ${at}`]: { a: [1, 'two', null, { b: true }], c: {} } } },
    load_balancing_weight: at + 1,
  }));

const manager = `${api}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`;
const range = 'type.googleapis.com/envoy.type.v3.Int64Range';

const resources: Readonly<Record<string, Any>> = {
  'endpoints: lists, maps, wrappers': typed(`${api}.config.endpoint.v3.ClusterLoadAssignment`, {
    cluster_name: 'shop',
    endpoints: Array.from({ length: 5 }, (_, at) => ({
      locality: { zone: `z${at}` },
      lb_endpoints: endpoints(at * 7),
      priority: at,
    })),
    policy: { drop_overloads: [{ category: 'x', drop_percentage: { numerator: 3 } }] },
  }),
  'a cluster: durations, oneofs, packed enums': typed(`${api}.config.cluster.v3.Cluster`, {
    name: 'shop',
    connect_timeout: '2.5s',
    lb_policy: 'RING_HASH',
    ring_hash_lb_config: { minimum_ring_size: '1024' },
    metadata: { filter_metadata: { a: { b: 'c'.repeat(100) }, 'ü "': { list: [[['deep']]] } } },
    load_assignment: { cluster_name: 'shop', endpoints: [{ lb_endpoints: endpoints(9) }] },
  }),
  'a listener: an Any inside an Any': typed(`${api}.config.listener.v3.Listener`, {
    name: 'web',
    filter_chains: [
      {
        filters: [
          {
            name: 'http',
            typed_config: {
              '@type': manager,
              stat_prefix: 'in',
              http_filters: Array.from({ length: 10 }, (_, at) => ({
                name: `f${at}`,
                typed_config: { '@type': range, start: String(at) },
              })),
            },
          },
        ],
      },
    ],
  }),
  'a runtime: Struct': typed(`${api}.service.runtime.v3.Runtime`, {
    name: 'rtds',
    layer: { many: Array.from({ length: 60 }, (_, at) => ({ at, text: 'x'.repeat(at) })), none: [], no: {} },
  }),
  'a secret: bytes': typed(`${api}.extensions.transport_sockets.tls.v3.Secret`, {
    name: 'key',
    generic_secret: { secret: { inline_bytes: Buffer.alloc(200_001, 'abc').toString('base64') } },
  }),
  'a Struct of its own': typed('type.googleapis.com/google.protobuf.Struct', { a: [1, { b: 'c' }], d: {} }),
  'an Any of its own': typed('type.googleapis.com/google.protobuf.Any', { '@type': range, start: '7' }),
  'nothing at all': typed(`${api}.config.cluster.v3.Cluster`, {}),
};

describe('§7.7 JSON of a large Any, in turns', () => {
  for (const [name, any] of Object.entries(resources)) {
    it(`is the JSON of a small one: ${name}`, () => {
      for (const bytes of [0, 1, 7, 30, 100, 400, 1000, 5000, 100_000]) {
        for (const form of [{}, { useProtoFieldName: true }])
          expect(inTurns(any, bytes, form)).to.deep.equal(whole(any, form));
      }
    });
  }

  it('is the same where fields come several times, and in any order', () => {
    const { typeUrl } = resources['a cluster: durations, oneofs, packed enums'] ?? unknown;
    const url = `${api}.config.cluster.v3.Cluster`;
    const parts = [
      { name: 'first', ring_hash_lb_config: { minimum_ring_size: '1' } },
      { maglev_lb_config: { table_size: '7' }, metadata: { filter_metadata: { a: { b: 1 }, c: { d: 2 } } } },
      { type: 'EDS', eds_cluster_config: { service_name: 'x'.repeat(50) } },
      { cluster_type: { name: 'own', typed_config: { '@type': range, end: '3' } } },
      { ring_hash_lb_config: { maximum_ring_size: '9' }, name: 'last' },
      { metadata: { filter_metadata: { a: { e: 3 } } }, type: 'STATIC' },
      { load_assignment: { cluster_name: 'a', endpoints: [{ lb_endpoints: endpoints(3) }] } },
      { load_assignment: { cluster_name: 'b', endpoints: [{ lb_endpoints: endpoints(2) }] } },
    ].map((part) => typed(url, part).value);
    for (let turn = 0; turn < parts.length; turn++) {
      const value = Buffer.concat([...parts.slice(turn), ...parts.slice(0, turn), ...parts.slice(turn)]);
      const any = create(AnySchema, { typeUrl, value });
      for (const bytes of [0, 10, 60, 400]) expect(inTurns(any, bytes)).to.deep.equal(whole(any));
    }
  });

  it('an unknown type inside is its bytes, and is told; the rest is as it was', () => {
    const listener = resources['a listener: an Any inside an Any'] ?? unknown;
    const encoded = Buffer.from(listener.value).toString('latin1');
    const other = range.replace('envoy', 'acme0');
    const value = Buffer.from(encoded.replace(range, other), 'latin1');
    const any = create(AnySchema, { typeUrl: listener.typeUrl, value });
    const at = ['filterChains', 'filters', 'typedConfig', 'httpFilters'];
    for (const bytes of [0, 50, 500, 100_000]) {
      const told = new Set<string>();
      const [first, ...others] = listAt(inTurns(any, bytes, { unreadable: (type) => told.add(type) }), at);
      const [, ...expected] = listAt(whole(listener), at);
      expect(others).to.deep.equal(expected);
      expect(first).to.deep.equal({ name: 'f0', typedConfig: asBytes(other, '') });
      expect([...told]).to.deep.equal([other]);
    }
  });

  it('an empty Any beside an unknown type is empty', () => {
    const message = create(DiscoveryResponseSchema, { resources: [unknown, create(AnySchema)] });
    const value = toBinary(DiscoveryResponseSchema, message);
    const any = create(AnySchema, { typeUrl: `${api}.service.discovery.v3.DiscoveryResponse`, value });
    for (const bytes of [0, 10, 100_000])
      expect(inTurns(any, bytes)).to.have.deep.nested.property('resources[1]', {});
  });

  it('so is what is not known at all, or malformed, however large', () => {
    for (const bytes of [1, 1_000_000]) {
      const large = create(AnySchema, { ...unknown, value: Buffer.alloc(300_000, 1) });
      const base64 = Buffer.from(large.value).toString('base64');
      expect(inTurns(large, bytes)).to.deep.equal(asBytes(unknown.typeUrl, base64));
      const endpointsType = `${api}.config.endpoint.v3.ClusterLoadAssignment`;
      const cut = create(AnySchema, { typeUrl: endpointsType, value: Buffer.from([0x12, 0x7f, 1]) });
      const written = inTurns(cut, bytes);
      expect(written).to.have.nested.property('value.type_url', endpointsType);
      expect(written).to.have.nested.property('value.value_base64', 'En8B');
    }
  });

  it('of a message may have so many bytes', async () => {
    const listener = resources['a listener: an Any inside an Any'] ?? unknown;
    const bytes = toBinary(AnySchema, listener);
    const form = { useProtoFieldName: true };
    const expected = JSON.stringify(whole(listener, form));
    const text = (most: number): Promise<string | undefined> =>
      messageText(AnySchema, bytes, most, new Pace(systemClock), form);
    expect(await text(expected.length)).to.equal(expected);
    expect(await text(expected.length - 1)).to.equal(undefined);
  });

  it('each turn is short, whatever the resource has most of', () => {
    const many = typed(`${api}.config.endpoint.v3.ClusterLoadAssignment`, {
      endpoints: [{ lb_endpoints: endpoints(50).flatMap((one) => Array.from({ length: 100 }, () => one)) }],
    });
    const turns = new JsonInTurns(new JsonText(), {}).any(many);
    let count = 1;
    while (turns.next().done !== true) count++;
    expect(count).to.be.above(many.value.length / (64 << 10));
  });
});

/** What is unreadable. */
const asBytes = (typeUrl: string, base64: string): unknown => ({
  '@type': 'type.googleapis.com/google.protobuf.Struct',
  value: {
    unreadable: `the type ${JSON.stringify(messageName(typeUrl))} is not part of the Envoy API that this build knows`,
    type_url: typeUrl,
    value_base64: base64,
  },
});

/** The last of these keys is a list; of the lists before it the first entry counts. */
function listAt(json: unknown, keys: readonly string[]): readonly unknown[] {
  let found: unknown = json;
  for (const key of keys) {
    if (Array.isArray(found)) found = found[0];
    found = typeof found === 'object' && found !== null ? Reflect.get(found, key) : undefined;
  }
  return Array.isArray(found) ? found : [];
}

const unknown: Any = create(AnySchema, {
  typeUrl: 'type.googleapis.com/acme.Filter',
  value: new Uint8Array([8, 1]),
});
