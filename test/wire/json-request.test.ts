import { fromJsonString, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type WantedMetadata, wantedMetadata } from '../../src/model/node-path.ts';
import { atOnce } from '../../src/model/time-slices.ts';
import { readClientNode } from '../../src/security/client-node.ts';
import { jsonWithout } from '../../src/wire/json-reader.ts';
import { requestFromJson } from '../../src/wire/json-request.ts';
import { readRequest, readSelectors, sotwSelectors } from '../../src/wire/requests.ts';

/** What the relay reads of an encoded request. */
function readingOf(bytes: Buffer): unknown {
  const request = readRequest(bytes, 'sotw');
  if (!request.ok) throw new Error(request.error);
  const { node, subscribe, ...rest } = request.value;
  return { ...rest, node: node && readClientNode(node), selectors: readSelectors(subscribe, sotwSelectors) };
}

function encoded(text: string, wanted?: WantedMetadata): Buffer {
  const bytes = atOnce(requestFromJson(Buffer.from(text), wanted));
  if (!bytes.ok) throw new Error(`${bytes.error}: ${text}`);
  return bytes.value;
}

function refusal(text: string | Buffer): string {
  const read = atOnce(requestFromJson(Buffer.from(text), undefined));
  return read.ok ? 'taken' : read.error;
}

const texts = fc.string({ unit: 'binary', maxLength: 20 }).filter((text) => text.isWellFormed());
const struct = fc.dictionary(texts, fc.jsonValue({ maxDepth: 3, stringUnit: 'grapheme' }));
const part = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

const requests = fc.record({
  version_info: part(texts),
  node: part(
    fc.record({
      id: part(texts),
      cluster: part(texts),
      metadata: part(struct),
      locality: part(fc.record({ region: part(texts), zone: part(texts), sub_zone: part(texts) })),
      userAgentName: part(texts),
      user_agent_build_version: part(
        fc.record({ version: fc.record({ majorNumber: fc.nat(), minor_number: fc.nat(), patch: fc.nat() }) }),
      ),
      client_features: part(fc.array(texts)),
    }),
  ),
  resource_names: part(fc.array(texts)),
  resourceLocators: part(
    fc.array(fc.record({ name: part(texts), dynamic_parameters: part(fc.dictionary(texts, texts)) })),
  ),
  typeUrl: part(texts),
  response_nonce: part(texts),
  errorDetail: part(
    fc.record({ code: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), message: part(texts) }),
  ),
});

describe('a DiscoveryRequest in JSON (§7.1)', () => {
  it('is read as by a reader of protobuf that builds all of it', () => {
    fc.assert(
      fc.property(requests, fc.constantFrom(0, 2), (request, indent) => {
        const text = JSON.stringify(request, undefined, indent);
        const theirs = fromJsonString(DiscoveryRequestSchema, text);
        const all = Buffer.from(toBinary(DiscoveryRequestSchema, theirs));
        expect(readingOf(encoded(text))).to.deep.equal(readingOf(all));
      }),
      { numRuns: 500 },
    );
  });

  it('of metadata only what the rules read is built', () => {
    const metadata = { env: 'prod', other: { deep: ['x'] }, a: { b: 1.5, c: { d: true }, e: null, f: [1] } };
    const wanted = wantedMetadata(['node.metadata.env', 'node.metadata.a.b', 'node.metadata.a.c', 'node.id']);
    const bytes = encoded(JSON.stringify({ node: { metadata, extensions: [{ name: 'x' }] } }), wanted);
    const { node } = readSotwRequestOf(bytes);
    const read = readClientNode(node, wanted);
    expect(read.ok && read.value.metadata).to.deep.equal(
      new Map<string, unknown>([
        ['env', 'prod'],
        [
          'a',
          new Map<string, unknown>([
            ['b', '1.5'],
            ['c', new Map()],
          ]),
        ],
      ]),
    );
    expect(bytes.includes('other')).to.equal(false);
  });

  it('whatever the bytes are, an answer comes, and JSON that was cut off is not taken', () => {
    const whole = JSON.stringify({
      node: { id: 'a\u00e9"\\', metadata: { x: [1.5e3, true, null, {}] } },
      z: -0,
    });
    for (let length = 0; length < whole.length; length++) {
      expect(refusal(whole.slice(0, length))).to.match(/^the body is not (?:JSON|a JSON object)/);
    }
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => typeof refusal(Buffer.from(bytes)) === 'string'),
      { numRuns: 1000 },
    );
    fc.assert(
      fc.property(fc.json({ stringUnit: 'binary' }), fc.nat(), fc.string(), (json, at, noise) => {
        const mangled = json.slice(0, at % json.length) + noise + json.slice((at % json.length) + 1);
        expect(refusal(`{"x":${mangled}}`) === 'taken').to.equal(isJson(`{"x":${mangled}}`), mangled);
      }),
      { numRuns: 2000 },
    );
  });

  for (const [what, text, says] of [
    ['a field twice', '{"version_info":"1","version_info":"2"}', /version_info may be given only once/],
    [
      'a field under both names',
      '{"version_info":"1","versionInfo":"2"}',
      /version_info may be given only once/,
    ],
    ['a one-of twice', '{"node":{"userAgentVersion":"1","userAgentBuildVersion":{}}}', /once/],
    [
      'a key of metadata twice',
      '{"node":{"metadata":{"a":1,"a":2}}}',
      /once at byte \d+, in node\.metadata\.a/,
    ],
    ['a parameter twice', '{"resource_locators":[{"dynamic_parameters":{"a":"","a":""}}]}', /once/],
    ['another kind', '{"node":{"locality":[]}}', /an object is expected at byte 20, in node\.locality/],
    [
      'a null in a list',
      '{"resource_names":[null]}',
      /a string is expected at byte 19, in resource_names\.0/,
    ],
    ['a number that is none', '{"error_detail":{"code":"1x"}}', /a number is expected/],
    [
      'a number in quotes that JSON does not write so',
      '{"error_detail":{"code":"0x10"}}',
      /a number is expected/,
    ],
    ['a number with a fraction', '{"error_detail":{"code":1.5}}', /a number of 32 bits/],
    ['half a character', '{"node":{"id":"\\ud800"}}', /half a character/],
    ['bytes that are no text', Buffer.from([0x22, 0xff, 0x22]), /not UTF-8/],
    ['too deep', `{"x":${'['.repeat(100)}`, /nested too deeply: more than 100 levels/],
    ['too many values', `{"x":[${'{},'.repeat(200_000)}{}]}`, /more than 200000 values/],
  ] as const) {
    it(`refuses ${what}, and says where`, () => expect(refusal(text)).to.match(says));
  }

  it('takes what protobuf takes: null for nothing, and numbers in quotes', () => {
    const request = '{"node":null,"resource_names":null,"error_detail":{"code":"13","message":null}}';
    const read = readSotwRequestOf(encoded(request));
    expect(read.error).to.deep.equal({ code: 13, message: '' });
  });
});

describe('other JSON of strangers', () => {
  it('is parsed without what nobody reads', () => {
    const text = Buffer.from('{"node":{"a":[1]},"more":{"b":[2,"\\u0041"]}}');
    expect(jsonWithout(['node'], text, 10)).to.equal('{"more":{"b":[2,"\\u0041"]}}');
    expect(() => jsonWithout(['node'], Buffer.from('{"node":1}'), 10)).to.throw('an object is expected');
    expect(() => jsonWithout([], Buffer.from('{"a":[1,1,1,1,1,1,1,1,1]}'), 10)).to.throw(
      'more than 10 values',
    );
  });
});

function readSotwRequestOf(bytes: Buffer) {
  const read = readRequest(bytes, 'sotw');
  if (!read.ok) throw new Error(read.error);
  return { ...read.value, node: read.value.node ?? Buffer.alloc(0) };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(Buffer.from(text).toString());
    return true;
  } catch {
    return false;
  }
}
