import { fromBinary, toJson } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DiscoveryResponseSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { envoyRegistry, jsonToBytes, messageName, textToBytes } from '../../src/wire/registry.ts';

const listener = {
  '@type': 'type.googleapis.com/envoy.config.listener.v3.Listener',
  name: 'web',
  filterChains: [
    {
      filters: [
        {
          name: 'hcm',
          typedConfig: {
            '@type':
              'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
            statPrefix: 'web',
            httpFilters: [
              {
                name: 'router',
                typedConfig: {
                  '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router',
                },
              },
            ],
          },
        },
      ],
    },
  ],
};
const response = 'envoy.service.discovery.v3.DiscoveryResponse';

function faults(json: unknown, type = response) {
  const result = jsonToBytes(type, json);
  expect(result.ok).to.equal(false);
  return result.ok ? [] : result.error;
}

const fault = (json: unknown, type = response) => faults(json, type)[0];

describe('wire/registry', () => {
  it('knows the Envoy API and is loaded once', () => {
    expect(envoyRegistry().getMessage('envoy.config.cluster.v3.Cluster')?.typeName).to.be.a('string');
    expect(envoyRegistry()).to.equal(envoyRegistry());
  });

  it('§7 JSON with nested Any goes to bytes and back', () => {
    const json = { versionInfo: '7', resources: [listener] };
    const bytes = jsonToBytes(response, json);
    if (!bytes.ok) throw new Error(bytes.error[0]?.message);
    const decoded = fromBinary(DiscoveryResponseSchema, bytes.value);
    expect(decoded.resources[0]?.typeUrl).to.equal(listener['@type']);
    expect(toJson(DiscoveryResponseSchema, decoded, { registry: envoyRegistry() })).to.deep.equal(json);
  });

  it('§7 snake_case is the same as canonical JSON', () => {
    const snake = jsonToBytes(response, { version_info: '7', type_url: 'x' });
    expect(snake).to.deep.equal(jsonToBytes(response, { versionInfo: '7', typeUrl: 'x' }));
  });

  it('every fault is found, at most 100', () => {
    const bad = { ...listener, nam: 1, name: 7 };
    const places = faults({ resources: [bad, listener, bad], type: 1 }).map(({ path }) => path.join('.'));
    expect(places).to.have.members([
      'resources.0.nam',
      'resources.0.name',
      'resources.2.nam',
      'resources.2.name',
      'type',
    ]);
    expect(faults({ resources: Array.from({ length: 200 }, () => bad) })).to.have.length(100);
  });

  it('an unknown @type is named with its place', () => {
    const strange = { '@type': 'type.googleapis.com/acme.Strange', name: 'x' };
    expect(fault({ resources: [listener, strange] })).to.deep.include({
      path: ['resources', 1, '@type'],
      message:
        'unknown "@type" "type.googleapis.com/acme.Strange": it is not part of the Envoy API that this build knows',
    });
    const inside = { ...listener, filterChains: [{ filters: [{ name: 'f', typedConfig: strange }] }] };
    expect(fault({ resources: [inside] })?.path.join('.')).to.equal(
      'resources.0.filterChains.0.filters.0.typedConfig.@type',
    );
  });

  it('a missing @type, a wrong value and an unknown field are found in nested messages', () => {
    expect(fault({ resources: [{ name: 'x' }] })?.path).to.deep.equal(['resources', 0]);
    expect(fault({ resources: [{ ...listener, name: 5 }] })?.path).to.deep.equal(['resources', 0, 'name']);
    expect(fault({ resources: [{ ...listener, nam: 'x' }] })?.path).to.deep.equal(['resources', 0, 'nam']);
    expect(fault([])?.path).to.deep.equal([]);
  });

  it('a map value and a oneof set twice are found', () => {
    const node = 'envoy.config.core.v3.Node';
    expect(fault({ dynamicParameters: { a: { params: { b: 5 } } } }, node)?.path).to.deep.equal([
      'dynamicParameters',
      'a',
      'params',
    ]);
    const constraints = 'envoy.service.discovery.v3.DynamicParameterConstraints.SingleConstraint';
    expect(fault({ key: 'a', value: 'b', exists: {} }, constraints)?.message).to.contain('oneof');
  });

  it('unknown types never pass', () => {
    expect(jsonToBytes(response, { resources: [{ '@type': 'a/b' }] }).ok).to.equal(false);
  });

  it('an unknown type of message is an error, not an exception', () => {
    expect(fault({}, 'acme.Strange')?.message).to.contain('"acme.Strange"');
    expect(textToBytes('acme.Strange', '').ok).to.equal(false);
    expect(messageName('type.googleapis.com/acme.Strange')).to.equal('acme.Strange');
  });

  it('JSON nested beyond reason is refused without a stack overflow', () => {
    let deep: unknown = null;
    for (let depth = 0; depth < 50_000; depth++) deep = [deep];
    expect(fault({ resources: deep })?.message).to.contain('nested too deeply');
  });

  it('text format expands Any', () => {
    const text =
      'version_info: "7" resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "c" } }';
    const bytes = textToBytes(response, text);
    if (!bytes.ok) throw new Error(bytes.error);
    const decoded = fromBinary(DiscoveryResponseSchema, bytes.value);
    expect(toJson(DiscoveryResponseSchema, decoded, { registry: envoyRegistry() })).to.deep.equal({
      versionInfo: '7',
      resources: [{ '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster', name: 'c' }],
    });
  });
});
