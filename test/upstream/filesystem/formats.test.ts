import { create, ScalarType, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DiscoveryResponseSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { knownTypes } from '../../../src/model/types.ts';
import { isResourceFile, parseFile } from '../../../src/upstream/filesystem/resource-file.ts';
import { readRecord } from '../../../src/upstream/filesystem/scan-files.ts';
import { envoyRegistry, jsonToBytes, messageName } from '../../../src/wire/registry.ts';
import { cpuSeconds, slower } from '../../support/cpu.ts';
import { cds, clusters } from './harness.ts';

const wrapper = 'type.googleapis.com/envoy.service.discovery.v3.Resource';
const cluster = { '@type': cds, name: 'inner' };

function record(file: string, content: string | Uint8Array | object) {
  const bytes =
    content instanceof Uint8Array
      ? content
      : Buffer.from(typeof content === 'string' ? content : JSON.stringify(content));
  return readRecord(file, bytes, '', undefined, 8);
}

function problem(file: string, content: string | Uint8Array | object): string {
  const [found] = record(file, content).problems;
  return found === undefined ? '' : `${found.place?.line ?? '-'}: ${found.message}`;
}

function put(content: object) {
  const {
    resources: read = [],
    problems: [wrong],
  } = record('a.json', { resources: [content] });
  if (wrong !== undefined) throw new Error(wrong.message);
  return read[0]?.put;
}

describe('upstream/filesystem formats', () => {
  it('§7 reads .json .yaml .yml .pb .pb_text, all the same', () => {
    const json = { version_info: '3', resources: [{ '@type': cds, name: 'one', connect_timeout: '1.5s' }] };
    const pb = jsonToBytes(DiscoveryResponseSchema.typeName, json);
    if (!pb.ok) throw new Error(pb.error[0]?.message);
    const yaml = `version_info: "3"\nresources:\n- "@type": ${cds}\n  name: one\n  connectTimeout: 1.5s\n`;
    const text = `version_info: "3" resources { [${cds}] { name: "one" connect_timeout { seconds: 1 nanos: 500000000 } } }`;
    const all = [
      record('a.json', json),
      record('a.yaml', yaml),
      record('a.yml', yaml),
      record('a.pb', pb.value),
      record('a.pb_text', text),
    ].map(({ resources, problems: [wrong] }) => ({
      wrong,
      digests: resources?.map(({ digest }) => digest),
    }));
    for (const one of all) expect(one).to.deep.equal({ wrong: undefined, digests: all[0]?.digests });
    expect(all[0]?.digests).to.have.length(1);
    expect(isResourceFile('a.txt') || isResourceFile('yaml')).to.equal(false);
  });

  it('§7 versions: of the resource, else of the file, else of the content', () => {
    const own = { '@type': wrapper, name: 'x', version: '9', resource: cluster };
    expect(put(own)?.version).to.equal('9');
    const file = record('a.json', { version_info: '3', resources: [cluster] });
    expect(file.resources?.[0]?.put.version).to.equal('3');
    expect(put(cluster)?.version).to.match(/^[0-9a-f]{16}$/);
    expect(put(cluster)?.version).to.equal(put(cluster)?.version);
    expect(put({ ...cluster, altStatName: 'x' })?.version).not.to.equal(put(cluster)?.version);
  });

  it('a Resource gives name, constraints, aliases, TTL and cache control', () => {
    const constraints = { not_constraints: { constraint: { key: 'env', exists: {} } } };
    const given = put({
      '@type': wrapper,
      resource_name: { name: 'outer', dynamic_parameter_constraints: constraints },
      aliases: ['a', 'b'],
      ttl: '1.5s',
      cache_control: { do_not_cache: true },
      resource: cluster,
    });
    expect(given).to.deep.include({
      name: 'outer',
      aliases: ['a', 'b'],
      ttlMilliseconds: 1500,
      doNotCache: true,
    });
    expect(given?.constraints.key).not.to.equal('');
    expect(put({ '@type': wrapper, resource: cluster })?.name, 'else its own').to.equal('inner');
  });

  it('§6 xdstp names are canonical', () => {
    const name = 'xdstp://a/envoy.config.cluster.v3.Cluster/x?b=2&a=1';
    expect(put({ ...cluster, name })?.name).to.equal('xdstp://a/envoy.config.cluster.v3.Cluster/x?a=1&b=2');
    expect(problem('a.json', { resources: [{ ...cluster, name: 'xdstp://a/other.Type/x' }] })).to.contain(
      'other.Type',
    );
  });

  it('refuses what is not a resource, and says which and why', () => {
    const of = (...resources: readonly object[]) => problem('a.json', { resources });
    expect(of({ '@type': wrapper, name: 'x' })).to.equal('1: resources[0]: the Resource holds no `resource`');
    expect(of({ '@type': wrapper, name: 'x', resource_name: { name: 'x' }, resource: cluster })).to.contain(
      'both',
    );
    expect(of({ '@type': wrapper, resource: { '@type': wrapper, name: 'x' } })).to.contain(
      'inside a Resource',
    );
    expect(of({ '@type': cds })).to.contain('has no name');
    expect(of({ '@type': 'type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint' })).to.contain('wrap it');
    expect(of(cluster, cluster)).to.contain(
      'resources[1]: envoy.config.cluster.v3.Cluster "inner" is in this file twice',
    );
    expect(problem('a.json', { type_url: 'x/y', resources: [cluster] })).to.contain(
      "the file's type_url is x/y",
    );
    for (const { url, short } of knownTypes) {
      const first = envoyRegistry()
        .getMessage(messageName(url))
        ?.fields.find(({ number }) => number === 1);
      const isText = first?.fieldKind === 'scalar' && first.scalar === ScalarType.STRING;
      expect(isText, `${short}: the name is field 1`).to.equal(short !== 'leds');
    }
    const empty = {
      '@type': wrapper,
      resource_name: { name: 'x', dynamic_parameter_constraints: { constraint: {} } },
      resource: cluster,
    };
    expect(of(empty)).to.contain('its dynamic_parameter_constraints: ');
  });

  it('an empty or half-written file is refused: nothing in it would delete everything', () => {
    for (const file of ['a.json', 'a.yaml', 'a.pb', 'a.pb_text'])
      expect(problem(file, '')).to.contain('the file is empty');
    expect(problem('a.yaml', '# nothing yet\n')).to.contain('the file is empty');
    const bytes = toBinary(DiscoveryResponseSchema, create(DiscoveryResponseSchema, { versionInfo: 'abc' }));
    expect(problem('a.pb', bytes.subarray(0, 3))).to.contain('not an encoded DiscoveryResponse');
    expect(problem('a.json', '{\n"resources": [\n')).to.match(/^(3|-): .*JSON/);
    expect(problem('a.yaml', Buffer.from([0xff, 0xfe, 0x00]))).to.contain('UTF-8');
  });

  it('YAML errors carry the line: syntax, duplicate keys, several documents, unknown fields behind anchors', () => {
    expect(problem('a.yaml', 'resources: []\nversion_info: "a\n')).to.match(/^[23]: /);
    expect(problem('a.yaml', 'resources: []\nresources: []\n')).to.match(/^2: Map keys must be unique/);
    expect(problem('a.yaml', 'resources: []\n---\nresources: []\n')).to.match(/^2: /);
    expect(
      problem('a.yaml', `resources:\n- &a\n  "@type": ${cds}\n  name: x\n- <<: *a\n  nam: y\n`),
    ).to.match(/^6: resources\[1\]\.nam: /);
    expect(problem('a.json', `{\n "resources": [\n  {"@type": "${cds}",\n   "nam": 1}]}`)).to.match(/^4: /);
  });

  it('§7.2 in JSON too, a key that is there twice is refused: the first value would be lost without a word', () => {
    expect(problem('a.json', '{\n"resources": [],\n"resources": []}')).to.match(
      /^3: Map keys must be unique/,
    );
    const inside = `{"resources": [{"@type": "${cds}",\n"name": "x",\n"n\\u0061me": "y"}]}`;
    expect(problem('a.json', inside)).to.match(/^3: Map keys must be unique/);
    const other = `{"resources": [{"@type": "${cds}", "name": "x"}, {"@type": "${cds}", "name": "y"}]}`;
    expect(problem('a.json', other)).to.equal('');
  });

  it('merges by << work, and aliases that multiply are refused', () => {
    const merged = parseFile(
      'a.yaml',
      Buffer.from(`resources:\n- &a\n  "@type": ${cds}\n  name: x\n- <<: *a\n  name: y\n`),
    );
    expect(merged.ok && merged.value.response.resources).to.have.length(2);
    const levels = Array.from({ length: 9 }, (_, n) => `l${n}: &l${n} [${`*l${n - 1},`.repeat(9)}]`).slice(1);
    expect(problem('a.yaml', `l0: &l0 [x]\n${levels.join('\n')}\n`)).to.match(/alias/i);
  });

  it('aliases for each of which a large part of the document would be read are refused', () => {
    const many = (count: number): string =>
      Array.from({ length: count }, (_, at) => `- &a${at} x\n- *a${at}\n`).join('');
    expect(problem('a.yaml', `resources: []\nx:\n${many(5001)}`)).to.contain('5001 aliases are too many');
    const inside = `resources: []\nx: &x\n${many(500)}y: *x\nz:\n${'- x\n'.repeat(300_000)}`;
    expect(problem('a.yaml', inside)).to.contain('501 aliases are too many');
    const outside = inside.replace('&x', '').replace('*x', '1');
    expect(problem('a.yaml', outside)).to.match(/key "x" is unknown/);
  });

  it('integers of 64 bits keep their value', () => {
    const runtime = 'type.googleapis.com/envoy.config.route.v3.RouteConfiguration';
    const big = `{ "resources": [{ "@type": "${runtime}", "name": "r", "max_direct_response_body_size_bytes": 7 }] }`;
    expect(problem('a.json', big)).to.equal('');
    const any = { '@type': 'type.googleapis.com/google.protobuf.UInt64Value', value: 18446744073709551615n };
    const text = JSON.stringify(
      { resources: [{ '@type': wrapper, name: 'n', resource: any }] },
      (_key, value: unknown) => (typeof value === 'bigint' ? `@${value}@` : value),
    ).replace(/"@(\d+)@"/, '$1');
    for (const file of ['a.json', 'a.yaml']) {
      const bytes = record(file, text).resources?.[0]?.put.any;
      expect(Buffer.from(bytes ?? []).toString('hex'), file).to.match(/08f{18}01$|08(ff){9}01$/);
    }
  });

  it('JSON: integers of 64 bits beside one another, in strings and before a fault', () => {
    const range = { '@type': 'type.googleapis.com/google.protobuf.Struct' };
    const text = JSON.stringify({ resources: [{ '@type': wrapper, name: 'n', resource: range }] });
    const of = (value: string): string => {
      const bytes = record('a.json', text.replace(/\}\}\]/, `,"value":${value}}}]`)).resources?.[0]?.put.any;
      return Buffer.from(bytes ?? []).toString('latin1');
    };
    const given = of(
      '{"é":[-9223372036854775808, 9223372036854775807],"s":"1, 12345678901234567890","f":0.12345678901234567,"g":1e19}',
    );
    for (const shown of ['-9223372036854775808', '9223372036854775807', '1, 12345678901234567890'])
      expect(given).to.include(shown);
    expect(given, 'doubles').to.not.include('0.123').and.not.include('1e19');
    const bad = `{"resources": [{"@type": "${cds}", "name": "x", "connect_timeout": 12345678901234567890}, 1 2]}`;
    expect(problem('a.json', bad)).to.match(/^1: .*JSON/);
    const column = bad.lastIndexOf('2') + 1;
    expect(record('a.json', bad).problems[0]?.place).to.deep.equal({ line: 1, column });
  });

  it('JSON that protobuf could not hold is refused: half a character, or too deep', () => {
    const of = (metadata: string): string =>
      problem('a.json', `{"resources": [{"@type": "${cds}", "name": "x",\n"metadata": ${metadata}}]}`);
    expect(of('{"filter_metadata": {"f": {"\\ud800": 1}}}')).to.match(/^2: half a character/);
    expect(of(`{"filter_metadata": {"f": {"a": ${'['.repeat(200)}${']'.repeat(200)}}}}`)).to.match(
      /^2: nested too deeply/,
    );
  });

  it('JSON may be as deep as its messages are in protobuf, whatever lists and objects that takes', () => {
    const any = (name: string, more: object) => ({ '@type': `type.googleapis.com/envoy.${name}`, ...more });
    let permission: object = { any: true };
    for (let index = 0; index < 29; index++) permission = { or_rules: { rules: [permission] } };
    const policy = { permissions: [permission], principals: [{ any: true }] };
    const rbac = any('extensions.filters.http.rbac.v3.RBAC', { rules: { policies: { deep: policy } } });
    const manager = any('extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', {
      http_filters: [{ name: 'rbac', typed_config: rbac }],
    });
    const filters = [{ name: 'http', typed_config: manager }];
    const listener = any('config.listener.v3.Listener', { name: 'x', filter_chains: [{ filters }] });
    expect(problem('a.json', JSON.stringify({ resources: [listener] }))).to.equal('');
  });

  it('JSON is read by the reader of JSON, whatever digits it has', () => {
    const json = { resources: [{ ...cluster, alt_stat_name: '1700000000000000000' }] };
    const read = parseFile('a.json', Buffer.from(JSON.stringify(json)));
    // The reader of YAML, which takes many times as long, knows all places at once.
    expect(read.ok && read.value.places).to.deep.equal([]);
  });

  it('a map of 40,000 keys is read at once', () => {
    const keys = Array.from({ length: 40_000 }, (_, at) => `k${at}: 1`).join(', ');
    const began = cpuSeconds();
    const metadata = `{ filter_metadata: { f: { ${keys} } } }`;
    expect(problem('a.yaml', `resources: [{ "@type": ${cds}, name: x, metadata: ${metadata} }]`)).to.equal(
      '',
    );
    // It takes one. A reader that compares each key with all others takes far longer.
    expect((cpuSeconds() - began) / slower()).to.be.below(5);
  });

  it('a fault in a large file of JSON has no line, which only the reader of YAML would find', () => {
    const long = Buffer.alloc(17 << 20, ' ');
    const whole = JSON.stringify({ resources: [{ ...cluster, nam: 1 }] });
    expect(problem('a.json', Buffer.concat([long, Buffer.from(whole)]))).to.match(/^-: .*nam/);
  });

  it('a file that has grown since its size was asked for is not parsed', () => {
    const large = Buffer.concat([Buffer.from(clusters('one')), Buffer.alloc(16 << 20, '\n')]);
    expect(problem('a.yaml', large)).to.match(/^-: the file is larger than the 16777216 bytes/);
  });

  it('a bad file after a good one keeps the good content', () => {
    const good = record('a.yaml', clusters('one'));
    const bad = readRecord('a.yaml', Buffer.from('{'), '', good, 8);
    expect(bad.resources).to.equal(good.resources);
    expect(bad.problems).to.have.length(1);
    expect(readRecord('a.yaml', Buffer.from(clusters('one')), '', bad, 8).problems).to.deep.equal([]);
  });

  it('notes a type of which clients would never ask, as its prefix is another', () => {
    const value = Buffer.from('\n\x05inner', 'latin1');
    const any = { typeUrl: cds.replace('googleapis', 'example'), value };
    const response = create(DiscoveryResponseSchema, { resources: [any] });
    const { notes, resources } = record('a.pb', toBinary(DiscoveryResponseSchema, response));
    expect(resources).to.have.length(1);
    expect(notes.map(({ message }) => message).join()).to.match(
      /"inner": clients ask for type\.googleapis\.com\/envoy\S+Cluster, and nobody/,
    );
  });

  it('notes 50 things that are odd in a file, and says how many more there are', () => {
    const resources = Array.from({ length: 60 }, (_, at) => ({
      '@type': wrapper,
      ttl: '1s',
      resource: { ...cluster, name: `c${at}` },
    }));
    const { notes } = record('a.json', { resources });
    expect(notes).to.have.length(51);
    expect(notes.at(-1)?.message).to.equal('10 more problems are in this file');
  });
});
