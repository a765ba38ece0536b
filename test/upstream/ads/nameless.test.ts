import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import {
  DeltaDiscoveryResponseSchema,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { typeOf } from './responses.ts';
import { Conversation } from './transcript.ts';

const nameTableType = 'type.googleapis.com/istio.networking.nds.v1.NameTable';
/** As istiod writes it: field 1 is a map from host names, so it is no name. */
const nameTable = (...hosts: readonly string[]): Buffer =>
  Buffer.concat(
    hosts.map((host) =>
      Buffer.concat([
        Buffer.of(0x0a, host.length + 4, 0x0a, host.length),
        Buffer.from(host),
        Buffer.of(0x12, 0),
      ]),
    ),
  );

function response(protocol: 'sotw' | 'delta', typeUrl: string, value: Uint8Array): Buffer {
  const any = create(AnySchema, { typeUrl, value });
  const bytes =
    protocol === 'sotw'
      ? toBinary(
          DiscoveryResponseSchema,
          create(DiscoveryResponseSchema, { typeUrl, nonce: 'n1', resources: [any] }),
        )
      : toBinary(
          DeltaDiscoveryResponseSchema,
          create(DeltaDiscoveryResponseSchema, { typeUrl, nonce: 'n1', resources: [{ resource: any }] }),
        );
  return Buffer.from(bytes);
}

function answerTo(protocol: 'sotw' | 'delta', typeUrl: string, value: Uint8Array): string {
  const conversation = new Conversation(protocol, [], '');
  for (const line of [`subscribe ${typeUrl} *`, 'connect']) conversation.say(line);
  return conversation.receive(response(protocol, typeUrl, value)).join('\n');
}

describe('a resource without a name', () => {
  for (const protocol of ['sotw', 'delta'] as const) {
    for (const hosts of [[], ['a.example'], ['a.example', 'b.example']]) {
      it(`§5b.8 ${protocol}: is a singleton of its type (NameTable of ${hosts.length})`, () => {
        const answer = answerTo(protocol, nameTableType, nameTable(...hosts));
        expect(answer).to.not.include('nack');
        expect(answer).to.match(/^= \S+NameTable .*\n> .* ack n1$/s);
      });
    }

    it(`§5b.8 ${protocol}: of a type that has names is refused`, () => {
      expect(answerTo(protocol, typeOf('cds'), Buffer.alloc(0))).to.match(
        /nack n1 .*a resource has no name.*Cluster/,
      );
    });
  }

  for (const [short, protocol, expected] of [
    ['cds', 'sotw', /^= cds .* !\*:7 settled \[\*\]\n> .* ack n1$/m],
    ['cds', 'delta', /^= cds .* !\*:7 settled \[\*\]\n> .* ack n1$/m],
    ['eds', 'sotw', /nack n1 .*a resource error has no name/],
    ['eds', 'delta', /nack n1 .*a resource error has no name/],
  ] as const) {
    it(`§8.2 ${protocol}: as an error is one of the wildcard, where an empty request means that (${short})`, () => {
      const conversation = new Conversation(protocol, [], '');
      for (const line of [`subscribe ${short} *`, 'connect']) conversation.say(line);
      const says =
        protocol === 'sotw' ? `< ${short} 1 n1 !:PERMISSION_DENIED` : `< ${short} s1 n1 !:PERMISSION_DENIED`;
      expect(conversation.say(says).join('\n')).to.match(expected);
    });
  }

  it('§2 SotW: of several names in a resource the last one counts, as for every decoder', () => {
    const value = Buffer.concat(['first', 'other'].map((name) => Buffer.from(`\n\u0005${name}`)));
    expect(answerTo('sotw', typeOf('cds'), value)).to.match(/^= cds [^>]* other:/);
  });

  it('§5b.8 SotW: an unknown type whose field 1 is a text is named by it', () => {
    const value = Buffer.concat([Buffer.of(0x0a, 4), Buffer.from('shop'), Buffer.of(0x18, 1)]);
    expect(answerTo('sotw', 'example.com/named.Type', value)).to.include('shop');
  });
});
