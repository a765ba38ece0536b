import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import {
  DeltaDiscoveryResponseSchema,
  DynamicParameterConstraintsSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { any, type } from '../support/in-memory-relay.ts';
import { is, not } from '../support/variants.ts';
import { type AdsStream, ControlPlane } from '../upstream/ads/control-plane.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess } from './support/relay.ts';
import { Connections } from './support/variant-client.ts';

const eds = type('eds');
const MB = 1 << 20;

type Constraints = MessageInitShape<typeof DynamicParameterConstraintsSchema>;

const encode = (init: Constraints): Uint8Array =>
  toBinary(DynamicParameterConstraintsSchema, create(DynamicParameterConstraintsSchema, init));

/** not(not(… exists k)). */
function nested(depth: number): Uint8Array {
  let bytes: Uint8Array = encode(is('k', 'v'));
  for (let level = 0; level < depth; level++) {
    bytes = new BinaryWriter().tag(4, WireType.LengthDelimited).bytes(bytes).finish();
  }
  return bytes;
}

/** A delta response of a good resource, and of variants of `shop`, their constraints as they are. */
function response(nonce: string, name: string, ...variants: readonly Uint8Array[]): Buffer {
  const good = toBinary(
    DeltaDiscoveryResponseSchema,
    create(DeltaDiscoveryResponseSchema, {
      typeUrl: eds,
      nonce,
      systemVersionInfo: nonce,
      resources: [{ name, version: '1', resource: any(eds, name, 'x') }],
    }),
  );
  const bad = variants.map((constraints) => {
    const identity = new BinaryWriter().tag(1, WireType.LengthDelimited).string('shop');
    identity.tag(2, WireType.LengthDelimited).bytes(constraints);
    const resource = new BinaryWriter().tag(1, WireType.LengthDelimited).string('1');
    resource.tag(2, WireType.LengthDelimited).bytes(toBinary(AnySchema, any(eds, 'shop', 'x')));
    resource.tag(8, WireType.LengthDelimited).bytes(identity.finish());
    return new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(resource.finish()).finish();
  });
  return Buffer.concat([good, ...bad]);
}

function removal(nonce: string, constraints: Uint8Array): Buffer {
  const dynamicParameterConstraints = fromBinary(DynamicParameterConstraintsSchema, constraints);
  const message = create(DeltaDiscoveryResponseSchema, {
    typeUrl: eds,
    nonce,
    removedResourceNames: [{ name: 'shop', dynamicParameterConstraints }],
  });
  return Buffer.from(toBinary(DeltaDiscoveryResponseSchema, message));
}

describe('constraints and parameters that are no such thing', function () {
  this.timeout(240_000);

  const refused: readonly (readonly [string, readonly Uint8Array[], RegExp])[] = [
    ['nested 10,000 deep', [nested(10_000)], /resource "shop": constraints: nested deeper than 64/],
    [
      'a SingleConstraint that says nothing',
      [encode({ type: { case: 'constraint', value: { key: 'env' } } })],
      /resource "shop": constraints: .*env/,
    ],
    [
      'the same variant twice',
      [encode(is('env', 'prod')), encode(is('env', 'prod'))],
      /resource "shop" comes twice with the same constraints/,
    ],
    ['bytes that are no message', [Buffer.of(0x0a, 0x7f, 1)], /resource "shop": constraints: /],
  ];

  it('from upstream: refused with a reason, nothing of the response applied, and the next good one is', async () => {
    const plane = await new ControlPlane().listen();
    try {
      await using relay = await RelayProcess.startMeasurable({
        upstreams: [{ name: 'central', ads: { endpoints: [`127.0.0.1:${plane.port}`], variants: 'NATIVE' } }],
        drain_timeout: '100ms',
        history: false, // it would keep what was said before, within its bound
      });
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta' });
      client.want('eds', { names: ['new', 'old'], locators: { shop: { env: 'prod' } } });
      const stream = await eventually((): AdsStream => {
        const [opened] = plane.streams;
        if (opened === undefined) throw new Error('no stream');
        return opened;
      });
      const answered = (nonce: string) =>
        eventually(() => {
          const found = plane.requests.find(({ responseNonce }) => responseNonce === nonce);
          if (found === undefined) throw new Error(`no answer to ${nonce}`);
          return found;
        });
      stream.sendRaw(response('first', 'old'));
      await client.gets('eds', ['old: x']);
      client.heard();
      for (const [index, [what, variants, reason]] of refused.entries()) {
        const nonce = `bad ${index}`;
        stream.sendRaw(response(nonce, 'new', ...variants));
        const answer = await answered(nonce);
        stream.sendRaw(response(`calm ${index}`, 'old')); // or the next refusal is delayed
        expect(answer.errorDetail?.message, what).to.match(reason);
        expect(client.heard(), what).to.deep.equal([]);
      }
      expect(await relay.metric('upstream_updates_total', 'result="rejected"')).to.equal(refused.length);

      // A kind that is not known yet is no fault: such a variant matches nobody, under NOT neither.
      const unknown = Buffer.of(0x7a, 0x00); // field 15
      const under = new BinaryWriter().tag(4, WireType.LengthDelimited).bytes(unknown).finish();
      stream.sendRaw(response('good', 'new', unknown, under, encode(not(is('env', 'test')))));
      await client.gets('eds', ['new: x', 'old: x', 'shop {not env == "test"}: x']);
      const { body } = await relay.rpc('distributary.admin.v1.AdminService/Explain', {
        type: 'eds',
        name: 'shop',
        parameters: { env: 'prod' },
      });
      expect(body).to.include('never: unknown kind of constraint');

      // Long values are no fault either. What they took is given back, as it is of what was refused: ten rounds of four
      // copies each would be 40 MB.
      const long = encode(is('env', 'x'.repeat(MB)));
      stream.sendRaw(response('long', 'new', long));
      await answered('long');
      const before = await relay.memory();
      for (let round = 0; round < 10; round++) {
        stream.sendRaw(response(`long ${round}`, 'new', encode(is('env', `${round}`.repeat(MB)))));
        stream.sendRaw(response(`too deep ${round}`, 'new', nested(10_000)));
        stream.sendRaw(removal(`gone ${round}`, encode(is('env', `${round}`.repeat(MB)))));
        await answered(`gone ${round}`);
      }
      // Dead buffers are given back a moment later.
      await eventually(async () => expect((await relay.memory()).used - before.used).to.be.below(8 * MB));
    } finally {
      plane.kill();
    }
  });

  it('from clients: refused with a reason, and nothing of it is kept', async () => {
    await using relay = await RelayProcess.startMeasurable({
      upstreams: [{ name: 'central', ads: { endpoints: ['127.0.0.1:1'], variants: 'NATIVE' } }],
      drain_timeout: '100ms',
    });
    const parameters = (count: number, length: number): Record<string, string> =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`key-${index}`, 'v'.repeat(length)]));
    const attempts = async (): Promise<void> => {
      using connections = new Connections(relay.xds);
      for (const protocol of ['sotw', 'delta'] as const) {
        for (const [shop, reason] of [
          [parameters(100_000, 1), /locator "shop" has 100000 dynamic parameters: at most 128 are accepted/],
          [parameters(1, MB), /dynamic parameter "key-0" of locator "shop" is too long/],
        ] as const) {
          const client = connections.open({ protocol });
          client.want('eds', { locators: { shop } });
          const status = await client.ends();
          expect(status.code).to.equal(3);
          expect(status.details).to.match(reason);
        }
      }
    };
    await attempts();
    const before = await relay.memory();
    for (let round = 0; round < 3; round++) await attempts();
    await eventually(async () => expect((await relay.memory()).used - before.used).to.be.below(2 * MB));
  });
});
