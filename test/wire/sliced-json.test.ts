import { create, toBinary, toJson } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { systemClock } from '../../src/model/clock.ts';
import { Pace } from '../../src/model/time-slices.ts';
import { readableAny } from '../../src/wire/readable-any.ts';
import { envoyRegistry, jsonToBytes } from '../../src/wire/registry.ts';
import { SlicedJson } from '../../src/wire/sliced-json.ts';

const route = 'envoy.config.route.v3.RouteConfiguration';
const options = () => ({ registry: envoyRegistry(), useProtoFieldName: true });

/** Longer than what is written at once, at each level: lists, maps, a message, a oneof, an Any inside. */
const large = {
  name: 'shop',
  virtual_hosts: Array.from({ length: 40 }, (_, host) => ({
    name: `host-${host}`,
    domains: [`${host}.example`],
    routes: Array.from({ length: 40 }, (_, index) => ({
      match: { prefix: `/${'p'.repeat(20)}${index}` },
      ...(index % 2 === 0
        ? { route: { cluster: `c${index}`, timeout: '3s' } }
        : { redirect: { path_redirect: '/' } }),
      metadata: { filter_metadata: { a: { b: [1, 'two', null, true] } } },
    })),
    typed_per_filter_config: Object.fromEntries(
      Array.from({ length: 400 }, (_, index) => [
        `filter-"${index}"`,
        { '@type': 'type.googleapis.com/google.protobuf.StringValue', value: 'v\u0001' },
      ]),
    ),
  })),
  validate_clusters: true,
};

function encoded(typeName: string, value: Uint8Array): Uint8Array {
  return toBinary(AnySchema, create(AnySchema, { typeUrl: `type.googleapis.com/${typeName}`, value }));
}

function bytesOf(json: object): Uint8Array {
  const bytes = jsonToBytes(route, json, { ignoreUnknownFields: false });
  if (!bytes.ok) throw new Error(bytes.error.message);
  return bytes.value;
}

const written = (body: Uint8Array, most = Infinity) =>
  new SlicedJson(new Pace(systemClock), true, most).written(AnySchema, body);

describe('JSON in slices', () => {
  it('is what protobuf writes at once', async () => {
    const value = bytesOf(large);
    const any = create(AnySchema, { typeUrl: `type.googleapis.com/${route}`, value });
    expect(value.length).to.be.above(500_000);
    const text = (await written(encoded(route, value))) ?? '';
    expect(JSON.parse(text)).to.deep.equal(toJson(AnySchema, any, options()));
  });

  it('of a oneof that comes twice the last one counts, and a message that comes twice is merged', async () => {
    const [first, second] = [
      { virtual_hosts: large.virtual_hosts.slice(0, 1) },
      { max_direct_response_body_size_bytes: 7 },
    ];
    const value = Buffer.concat([
      bytesOf(first),
      bytesOf(second),
      bytesOf({ max_direct_response_body_size_bytes: 9 }),
    ]);
    const any = create(AnySchema, { typeUrl: `type.googleapis.com/${route}`, value });
    const text = (await written(encoded(route, value))) ?? '';
    expect(JSON.parse(text)).to.deep.equal(toJson(AnySchema, any, options()));
  });

  it('an unknown type and malformed bytes are shown as bytes', async () => {
    const unknown = { typeUrl: 'type.googleapis.com/acme.Filter', value: Buffer.alloc(100_000, 1) };
    const text = (await written(encoded('acme.Filter', unknown.value))) ?? '';
    const whole = toJson(AnySchema, create(AnySchema, readableAny(unknown)), options());
    expect(JSON.parse(text)).to.deep.equal(whole);
    expect(await written(encoded(route, Buffer.alloc(100_000, 0xff)))).to.include('value_base64');
  });

  it('ends at so many characters', async () => {
    expect(await written(encoded(route, bytesOf(large)), 100_000)).to.equal(undefined);
  });
});
