import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { knownTypes } from '../../src/model/types.ts';
import {
  readRequest,
  readSelectors,
  sotwSelectors,
  subscribed,
  unsubscribed,
} from '../../src/wire/requests.ts';

const urls = knownTypes.map(({ url }) => url);
/** Known ones, what differs from one in a character, and anything. */
const url = fc.oneof(
  fc.constantFrom(...urls),
  fc
    .tuple(fc.constantFrom(...urls), fc.nat(60), fc.constantFrom('x', 'é', ''))
    .map(([known, at, other]) => known.slice(0, at) + other + known.slice(at + 1)),
  fc.string({ unit: 'grapheme' }),
);
const text = fc.string({ unit: 'grapheme', maxLength: 200 });
const names = fc.array(text, { maxLength: 5 });
const sotw = fc
  .record({ typeUrl: url, versionInfo: text, responseNonce: text, resourceNames: names, id: text })
  .map(({ id, ...rest }) => create(DiscoveryRequestSchema, { ...rest, node: { id } }));
const delta = fc
  .record({ typeUrl: url, responseNonce: text, subscribe: names, unsubscribe: names })
  .map(({ subscribe, unsubscribe, ...rest }) =>
    create(DeltaDiscoveryRequestSchema, {
      ...rest,
      resourceNamesSubscribe: subscribe,
      resourceNamesUnsubscribe: unsubscribe,
    }),
  );

function decodes(run: () => unknown): boolean {
  try {
    run();
    return true;
  } catch {
    return false;
  }
}

describe('requests, read by hand', () => {
  it('SotW: as protobuf reads them', () => {
    fc.assert(
      fc.property(sotw, (request) => {
        const read = readRequest(Buffer.from(toBinary(DiscoveryRequestSchema, request)), 'sotw');
        if (!read.ok) throw new Error(read.error);
        const { typeUrl, version, nonce, subscribe } = read.value;
        expect([typeUrl, version, nonce]).to.deep.equal([
          request.typeUrl,
          request.versionInfo,
          request.responseNonce,
        ]);
        const selected = readSelectors(subscribe, sotwSelectors);
        expect(selected.ok ? selected.value.names : []).to.deep.equal(request.resourceNames);
      }),
    );
  });

  it('SotW: names and locators are the same bytes, whatever is between them', () => {
    const subscribed = ({ responseNonce, typeUrl }: { responseNonce: string; typeUrl: string }) => {
      const resourceLocators = [{ name: 'a' }, { name: 'b', dynamicParameters: { env: 'prod' } }];
      const request = { responseNonce, typeUrl, resourceNames: ['x', 'y'], resourceLocators };
      const bytes = toBinary(DiscoveryRequestSchema, create(DiscoveryRequestSchema, request));
      const read = readRequest(Buffer.from(bytes), 'sotw');
      return read.ok ? read.value.subscribe : undefined;
    };
    const first = subscribed({ responseNonce: '', typeUrl: '' });
    expect(subscribed({ responseNonce: '12', typeUrl: 'type' })).to.deep.equal(first);
    const selected = readSelectors(first, sotwSelectors);
    expect(selected).to.deep.equal({
      ok: true,
      value: {
        names: ['x', 'y'],
        locators: [
          { name: 'a', parameters: [] },
          { name: 'b', parameters: [['env', 'prod']] },
        ],
      },
    });
  });

  it('delta: as protobuf reads them', () => {
    fc.assert(
      fc.property(delta, (request) => {
        const read = readRequest(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)), 'delta');
        if (!read.ok) throw new Error(read.error);
        const { typeUrl, nonce, subscribe, unsubscribe } = read.value;
        expect([typeUrl, nonce]).to.deep.equal([request.typeUrl, request.responseNonce]);
        const selected = readSelectors(subscribe, subscribed);
        expect(selected.ok ? selected.value.names : []).to.deep.equal(request.resourceNamesSubscribe);
        const dropped = readSelectors(unsubscribe, unsubscribed);
        expect(dropped.ok ? dropped.value.names : []).to.deep.equal(request.resourceNamesUnsubscribe);
      }),
    );
  });

  it('cut off anywhere: malformed where protobuf says so', () => {
    const cut = <T>(messages: fc.Arbitrary<T>, encode: (message: T) => Uint8Array) =>
      fc.tuple(messages, fc.nat(400)).map(([message, at]) => Buffer.from(encode(message)).subarray(0, at));
    fc.assert(
      fc.property(
        cut(sotw, (message) => toBinary(DiscoveryRequestSchema, message)),
        (bytes) => {
          const decoded = decodes(() => fromBinary(DiscoveryRequestSchema, bytes));
          expect(readRequest(bytes, 'sotw').ok).to.equal(decoded);
        },
      ),
    );
    fc.assert(
      fc.property(
        cut(delta, (message) => toBinary(DeltaDiscoveryRequestSchema, message)),
        (bytes) => {
          const decoded = decodes(() => fromBinary(DeltaDiscoveryRequestSchema, bytes));
          expect(readRequest(bytes, 'delta').ok).to.equal(decoded);
        },
      ),
    );
  });

  for (const [what, bytes] of [
    ['a type_url that is no UTF-8', [0x22, 1, 0xff]],
    ['a length of more than five bytes', [0x22, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]],
    ['a length past the end', [0x22, 2, 0x61]],
  ] as const) {
    it(`SotW, ${what}: malformed`, () => {
      expect(readRequest(Buffer.from(bytes), 'sotw').ok).to.equal(false);
    });
  }

  for (const [what, bytes] of [
    ['a type_url that is no UTF-8', [0x12, 1, 0xff]],
    ['a length past the end', [0x12, 2, 0x61]],
  ] as const) {
    it(`delta, ${what}: malformed`, () => {
      expect(readRequest(Buffer.from(bytes), 'delta').ok).to.equal(false);
    });
  }
});
