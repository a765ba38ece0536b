import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { expect } from 'chai';
import fc from 'fast-check';
import { bytesTag, doubleTag, MessageReader, varintTag } from '../../src/protobuf/message-reader.ts';

type Found = readonly [field: number, bytes: string];

function byHand(bytes: Buffer): Found[] {
  const found: Found[] = [];
  for (const reader = new MessageReader(bytes); reader.next(); ) {
    if (reader.tag === bytesTag(reader.field)) found.push([reader.field, reader.view().toString('hex')]);
  }
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
    expect(() => new MessageReader(bytes, 0, 4).next()).to.throw(RangeError);
    expect(() => new MessageReader(bytes, 0, 8)).to.throw(RangeError);
    expect(() => new MessageReader(Buffer.from([0x08, 0x80]), 0, 1).next()).to.throw();
    const nested = new MessageReader(Buffer.from([0x0a, 0x02, 0x0a, 0x05, 1, 2, 3, 4, 5, 6]));
    expect(nested.next()).to.equal(true);
    expect(() => nested.message().next()).to.throw(RangeError);
  });

  it('hold text, ASCII or not; what is not UTF-8 is refused, or replaced where that is asked for', () => {
    const text = 'ab\u00fc\u{1f600}\ufffd\ufeff';
    expect(only(new BinaryWriter().tag(1, WireType.LengthDelimited).string(text)).text()).to.equal(text);
    const broken = only(new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(Uint8Array.of(0x61, 0xff)));
    expect(() => broken.text()).to.throw(TypeError, 'not valid UTF-8');
    expect(broken.lossyText()).to.equal('a\ufffd');
  });

  it('hold numbers as protobuf writes them', () => {
    fc.assert(
      fc.property(fc.integer(), fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (small, large) => {
        const int32 = only(new BinaryWriter().tag(1, WireType.Varint).int32(small));
        expect([int32.tag, int32.int32(), int32.bool()]).to.deep.equal([varintTag(1), small, small !== 0]);
        const unsigned = BigInt.asUintN(64, large);
        const uint64 = only(new BinaryWriter().tag(1, WireType.Varint).uint64(unsigned));
        expect(uint64.uint64()).to.be.closeTo(Number(unsigned), Number(unsigned) / 2 ** 50);
        const int64 = only(new BinaryWriter().tag(1, WireType.Varint).int64(large));
        expect(int64.int64()).to.equal(Number(large));
      }),
    );
    const double = only(new BinaryWriter().tag(2, WireType.Bit64).double(-1.5));
    expect([double.tag, double.double()]).to.deep.equal([doubleTag(2), -1.5]);
    expect(only(new BinaryWriter().tag(3, WireType.Varint).uint32(2 ** 32 - 1)).uint32()).to.equal(
      2 ** 32 - 1,
    );
  });

  it('of a message in it are read by the same reader, which then goes on behind it', () => {
    // 1: { 2: 300, 3: "ab" }, 4: 5
    const reader = new MessageReader(Buffer.from('0a0710ac021a0261622005', 'hex'));
    expect(reader.next()).to.equal(true);
    const { start, end } = reader;
    const outer = reader.enter(start, end);
    expect([reader.next(), reader.tag, reader.uint64()]).to.deep.equal([true, varintTag(2), 300]);
    expect([reader.next(), reader.text(), reader.next()]).to.deep.equal([true, 'ab', false]);
    reader.enter(start, end);
    expect([reader.next(), reader.tag]).to.deep.equal([true, varintTag(2)]);
    reader.leave(outer);
    expect([reader.next(), reader.tag, reader.uint64()]).to.deep.equal([true, varintTag(4), 5]);
    expect(reader.next()).to.equal(false);
  });

  it('of a group: it is skipped, however deep', () => {
    const depth = 100_000;
    const groups = [
      ...Array.from({ length: depth }, () => 0x0b),
      ...Array.from({ length: depth }, () => 0x0c),
    ];
    const reader = new MessageReader(Buffer.from([...groups, 0x12, 0]));
    const tags: number[] = [];
    while (reader.next()) tags.push(reader.tag);
    expect(tags).to.deep.equal([0x0b, bytesTag(2)]);
    expect(() => new MessageReader(Buffer.from(groups.slice(1))).next()).not.to.throw();
    expect(() => new MessageReader(Buffer.from([0x0c])).next()).to.throw(RangeError);
    expect(() => new MessageReader(Buffer.from([0x0b])).next()).to.throw(RangeError);
  });
});

function only(writer: BinaryWriter): MessageReader {
  const reader = new MessageReader(writer.finish());
  expect(reader.next()).to.equal(true);
  return reader;
}
