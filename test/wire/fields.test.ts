import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { expect } from 'chai';
import fc from 'fast-check';
import { fieldsOf, strictTextOf, textOf } from '../../src/wire/fields.ts';

type Found = readonly [field: number, bytes: string];

function byHand(bytes: Buffer): Found[] {
  const found: Found[] = [];
  fieldsOf(bytes, 0, bytes.length, (field, start, end) =>
    found.push([field, bytes.toString('hex', start, end)]),
  );
  return found;
}

function byReader(bytes: Buffer): Found[] {
  const found: Found[] = [];
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.LengthDelimited) found.push([field, Buffer.from(reader.bytes()).toString('hex')]);
    else reader.skip(wire, field);
  }
  return found;
}

const anyField = fc.tuple(
  fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 2 ** 29 - 1 })),
  fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.nat(),
    fc.constant('fixed64' as const),
    fc.constant('fixed32' as const),
  ),
);

function encode(fields: readonly (readonly [number, Uint8Array | number | string])[]): Buffer {
  const writer = new BinaryWriter();
  for (const [field, value] of fields) {
    if (typeof value === 'number') writer.tag(field, WireType.Varint).uint32(value);
    else if (value === 'fixed64') writer.tag(field, WireType.Bit64).double(1.5);
    else if (value === 'fixed32') writer.tag(field, WireType.Bit32).float(1.5);
    else if (typeof value !== 'string') writer.tag(field, WireType.LengthDelimited).bytes(value);
  }
  return Buffer.from(writer.finish());
}

describe('the fields of a message', () => {
  it('are those that protobuf’s own reader finds', () => {
    fc.assert(
      fc.property(fc.array(anyField), (fields) => {
        const bytes = encode(fields);
        expect(byHand(bytes)).to.deep.equal(byReader(bytes));
      }),
    );
  });

  it('of garbage: either nothing but an error, or what the reader finds', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (raw) => {
        const bytes = Buffer.from(raw);
        let expected: Found[] | undefined;
        try {
          expected = byReader(bytes);
        } catch {
          expected = undefined;
        }
        // The reader lets a varint run on past what a length can be, and reads field 0: both are refused here or there.
        let found: Found[] | undefined;
        try {
          found = byHand(bytes);
        } catch {
          found = undefined;
        }
        if (expected !== undefined && found !== undefined) expect(found).to.deep.equal(expected);
      }),
    );
  });

  it('end with the range, not with the buffer', () => {
    const bytes = Buffer.from([0x0a, 0x05, 1, 2, 3, 4, 5]);
    expect(() => fieldsOf(bytes, 0, 4, () => {})).to.throw(RangeError);
    expect(() => fieldsOf(bytes, 0, 8, () => {})).to.throw(RangeError);
    expect(() => fieldsOf(Buffer.from([0x08, 0x80]), 0, 1, () => {})).to.throw();
  });

  it('hold text, ASCII or not; what is not UTF-8 is replaced or refused', () => {
    const bytes = Buffer.from('ab\u00fc\u{1f600}');
    expect(textOf(bytes, 0, 2)).to.equal('ab');
    expect(textOf(bytes, 0, bytes.length)).to.equal('ab\u00fc\u{1f600}');
    expect(strictTextOf(bytes, 0, bytes.length)).to.equal('ab\u00fc\u{1f600}');
    expect(textOf(Buffer.from([0xff]), 0, 1)).to.equal('\ufffd');
    expect(() => strictTextOf(Buffer.from([0xff]), 0, 1)).to.throw(TypeError);
  });
});
