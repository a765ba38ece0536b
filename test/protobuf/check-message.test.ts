import { create, toBinary } from '@bufbuild/protobuf';
import { StructSchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { MetadataSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { StatusSchema } from '../../src/gen/google/rpc/status_pb.ts';
import { checkMessage } from '../../src/protobuf/message-reader.ts';

const field = (number: number, content: Buffer): Buffer => {
  const length =
    content.length < 128 ? [content.length] : [(content.length & 127) | 128, content.length >> 7];
  return Buffer.concat([Buffer.of((number << 3) | 2, ...length), content]);
};
const text = (value: string): Buffer => Buffer.from(value);

/** A Struct in a Struct, so often. */
function nested(levels: number): Buffer {
  let value: Buffer = Buffer.alloc(0);
  for (let level = 0; level < levels; level++) {
    value = field(1, Buffer.concat([field(1, text('k')), field(2, field(5, value))]));
  }
  return value;
}

describe('checkMessage', () => {
  const struct = toBinary(
    StructSchema,
    create(StructSchema, { fields: { ü: { kind: { case: 'stringValue', value: 'ö' } } } }),
  );
  const entry = (content: Buffer): Buffer =>
    field(1, Buffer.concat([field(1, text('a')), field(2, content)]));

  for (const [what, desc, bytes, wrong] of [
    ['nothing', MetadataSchema, Buffer.alloc(0), undefined],
    ['metadata', MetadataSchema, entry(Buffer.from(struct)), undefined],
    ['a field that is not known', MetadataSchema, field(14, Buffer.of(0xff)), undefined],
    ['a known number with another wire type', MetadataSchema, Buffer.of(0x08, 1), undefined],
    ['a tag of wire type 7', MetadataSchema, text('7'), /illegal tag/],
    [
      'a message that is cut off',
      MetadataSchema,
      entry(Buffer.from(struct)).subarray(0, -1),
      /premature EOF/,
    ],
    ['a nested message that is cut off', MetadataSchema, entry(Buffer.of(0x0a, 5, 0x0a)), /premature EOF/],
    ['a key that is no UTF-8', MetadataSchema, field(1, field(1, Buffer.of(0xff))), /UTF-8/],
    ['a nested string that is no UTF-8', StatusSchema, field(3, field(1, Buffer.of(0xc3))), /UTF-8/],
    ['a varint of 64 bits', StatusSchema, Buffer.from('08ffffffffffffffffff01', 'hex'), undefined],
    ['a varint of more', StatusSchema, Buffer.from('08ffffffffffffffffff02', 'hex'), /invalid varint/],
    ['a tag of more than 32 bits', StatusSchema, Buffer.from('888080801000', 'hex'), /illegal tag/],
    ['the longest tag', StatusSchema, Buffer.from('f8ffffff0f00', 'hex'), undefined],
    ['a group', StatusSchema, Buffer.from('2324', 'hex'), /group/],
    ['a group in an entry of a map', StructSchema, field(1, Buffer.from('2324', 'hex')), /group/],
    ['97 levels, two below the top', StructSchema, nested(32), undefined],
    ['100 levels, two below the top', StructSchema, nested(33), /100 levels/],
    ['90 levels', StructSchema, nested(30), undefined],
    ['many levels', StructSchema, nested(60), /100 levels/],
  ] as const) {
    it(`${what}: ${wrong === undefined ? 'taken' : 'refused'}`, () => {
      const check = (): void => checkMessage(desc, bytes, 2);
      if (wrong === undefined) check();
      else expect(check).to.throw(wrong);
    });
  }
});
