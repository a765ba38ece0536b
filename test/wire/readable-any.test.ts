import { create } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { anyToJson } from '../../src/wire/readable-any.ts';
import { jsonToBytes, messageName } from '../../src/wire/registry.ts';

const api = 'type.googleapis.com/envoy';
const unknown: Any = create(AnySchema, {
  typeUrl: 'type.googleapis.com/acme.Filter',
  value: new Uint8Array([8, 1]),
});
const asBytes = {
  '@type': 'type.googleapis.com/google.protobuf.Struct',
  value: {
    unreadable: 'the type "acme.Filter" is not part of the Envoy API that this build knows',
    type_url: unknown.typeUrl,
    value_base64: 'CAE=',
  },
};

const typed = (typeUrl: string, json: object): Any => {
  const bytes = jsonToBytes(messageName(typeUrl), json);
  if (!bytes.ok) throw new Error(bytes.error.message);
  return create(AnySchema, { typeUrl, value: bytes.value });
};

describe('§7.7 JSON of an Any', () => {
  it('is canonical where all types are known', () => {
    const any = typed(`${api}.config.cluster.v3.Cluster`, { name: 'shop', connect_timeout: '2s' });
    expect(anyToJson(any)).to.deep.equal({ '@type': any.typeUrl, name: 'shop', connectTimeout: '2s' });
  });

  it('an unknown type is its bytes, and is told', () => {
    const told: string[] = [];
    expect(anyToJson(unknown, { unreadable: (type) => told.push(type) })).to.deep.equal(asBytes);
    expect(told).to.deep.equal([unknown.typeUrl]);
  });

  it('so is one inside an Any inside a list inside an Any, and the rest is as it was', () => {
    // Bytes of the unknown type where the JSON has a known one of the same shape: a name that is replaced.
    const manager = `${api}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`;
    const known = 'type.googleapis.com/envoy.type.v3.Int64Range';
    const web = typed(`${api}.config.listener.v3.Listener`, {
      name: 'web',
      filter_chains: [
        {
          filters: [
            {
              name: 'http',
              typed_config: {
                '@type': manager,
                stat_prefix: 'in',
                http_filters: [{ name: 'acme', typed_config: { '@type': known, start: '1' } }],
              },
            },
          ],
        },
      ],
    });
    const other = known.replace('envoy', 'acme0');
    const bytes = Buffer.from(web.value);
    bytes.write(other, bytes.indexOf(known));
    const json = JSON.stringify(anyToJson(create(AnySchema, { typeUrl: web.typeUrl, value: bytes })));
    expect(json).to.include('"name":"web"').and.to.include('"statPrefix":"in"');
    expect(json).to.include(`"type_url":"${other}"`).and.to.include('"value_base64":"CAE="');
  });

  it('malformed bytes of a known type are bytes, too', () => {
    const any = create(AnySchema, {
      typeUrl: `${api}.config.cluster.v3.Cluster`,
      value: new Uint8Array([10, 9]),
    });
    expect(JSON.stringify(anyToJson(any))).to.include('"value_base64":"Cgk="');
  });
});
