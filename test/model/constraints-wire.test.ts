import { fromBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { expect } from 'chai';
import * as fc from 'fast-check';
import { DynamicParameterConstraintsSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type Constraints, maxStampedDepth, parseConstraints } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import {
  and,
  encode,
  equal,
  error,
  exists,
  not,
  or,
  parse,
  type Tree,
  treeArbitrary,
  value,
} from './trees.ts';

type Given = Readonly<Record<string, string>>;
const given = (parameters: Given) => internParameters(Object.entries(parameters));
const matches = (tree: Tree, parameters: Given) => parse(tree).matches(given(parameters));

/** One field of a message, by hand: what no encoder of the known schema would write. */
const field = (number: number, content: Uint8Array | string): Uint8Array => {
  const writer = new BinaryWriter().tag(number, WireType.LengthDelimited);
  return (typeof content === 'string' ? writer.string(content) : writer.bytes(content)).finish();
};
const bytes = (...parts: readonly (Uint8Array | readonly number[])[]) =>
  Uint8Array.from(parts.flatMap((part) => [...part]));
const none = new Uint8Array(0);

describe('constraints: unknown kinds', () => {
  const unknown = field(9, 'from the future');
  const all: readonly Given[] = [{}, { a: '1' }, { a: '2' }];
  const parsed = (encoded: Uint8Array): Constraints => value(parseConstraints(encoded, 64));

  const poisoned: readonly (readonly [string, Uint8Array])[] = [
    ['alone', unknown],
    ['as a varint field', bytes([0x48, 0x01])],
    ['as a group', bytes([0x4b, 0x4c])],
    ['with a known number and another wire type', bytes([0x08, 0x01])],
    ['under NOT', field(4, unknown)],
    ['beside a part of OR that matches', field(2, bytes(field(1, none), field(1, unknown)))],
    ['deep below AND', field(3, field(1, field(4, field(4, unknown))))],
    ['in a SingleConstraint', field(1, bytes(field(1, 'a'), unknown))],
    ['in a SingleConstraint under NOT', field(4, field(1, bytes(field(1, 'a'), unknown)))],
  ];
  for (const [name, encoded] of poisoned)
    it(`§5 poison the whole expression: ${name}`, () => {
      const constraints = parsed(encoded);
      for (const parameters of all) expect(constraints.matches(given(parameters))).to.equal(false);
      expect(constraints.expression).to.deep.equal({ kind: 'never' });
      expect(constraints.required).to.equal(undefined);
    });

  it('§5 poisoned expressions of different bytes are different variants', () => {
    const keys = poisoned.map(([, encoded]) => parsed(encoded).key);
    expect(new Set(keys).size).to.equal(poisoned.length);
  });

  it('§5 unknown fields beside a oneof that is set change nothing', () => {
    const single = bytes(unknown, field(1, bytes(field(1, 'a'), field(2, '1'), unknown)), unknown);
    expect(parsed(single).key).to.equal(parse(equal('a', '1')).key);
    const list = field(3, bytes(field(1, field(1, bytes(field(1, 'a'), field(2, '1')))), unknown));
    expect(parsed(list).key).to.equal(parse(and(equal('a', '1'))).key);
    expect(parsed(field(1, bytes(field(1, 'a'), field(3, unknown)))).key).to.equal(parse(exists('a')).key);
  });
});

describe('constraints: the wire', () => {
  const reason = (encoded: Uint8Array, depth = 64) => error(parseConstraints(encoded, depth));

  it('§5 a SingleConstraint without value and exists is refused, and named', () => {
    expect(reason(field(1, field(1, 'env')))).to.equal(
      'constraints: the one for key "env" has neither value nor exists',
    );
    expect(reason(field(1, none))).to.include('neither value nor exists');
    expect(reason(field(4, field(3, field(1, field(1, field(1, 'env'))))))).to.include('"env"');
  });

  it('§5 a SingleConstraint without value and exists is refused beside an unknown kind too', () => {
    expect(reason(field(3, bytes(field(1, field(9, '')), field(1, field(1, none)))))).to.include('neither');
  });

  it('an empty value is a value', () => {
    expect(matches(equal('a', ''), { a: '' })).to.equal(true);
    expect(matches(equal('a', ''), {})).to.equal(false);
  });

  const malformed: readonly (readonly [string, Uint8Array, string])[] = [
    ['a length beyond the end', bytes([0x0a, 0x05, 0x0a]), 'premature EOF'],
    ['a tag cut off', bytes([0x8a]), ''],
    ['field number 0', bytes([0x02, 0x00]), 'illegal tag'],
    ['wire type 7', bytes([0x0f]), 'illegal tag'],
    ['an end of group without its start', bytes([0x0c]), ''],
    ['invalid UTF-8 in a key', field(1, bytes(field(1, bytes([0xff])), field(2, 'v'))), 'UTF-8'],
    ['invalid UTF-8 in a value', field(1, field(2, bytes([0xc3]))), 'UTF-8'],
    ['bytes inside exists', field(1, field(3, bytes([0x0a, 0x05]))), 'premature EOF'],
    [
      'bytes in a member that a later one replaces',
      bytes(field(4, bytes([0x0a, 0x05])), field(3, none)),
      'premature EOF',
    ],
  ];
  for (const [name, encoded, expected] of malformed)
    it(`malformed bytes are an error: ${name}`, () => {
      expect(reason(encoded))
        .to.match(/^constraints: ./)
        .and.to.include(expected);
    });

  it('a byte order mark is part of the text', () => {
    expect(matches(equal('a', '\ufeffx'), { a: '\ufeffx' })).to.equal(true);
    expect(matches(equal('a', '\ufeffx'), { a: 'x' })).to.equal(false);
  });

  const a1 = field(1, bytes(field(1, 'a'), field(2, '1')));
  const b2 = field(1, bytes(field(1, 'b'), field(2, '2')));
  const merges: readonly (readonly [string, Uint8Array, Tree])[] = [
    ['the last member wins', bytes(a1, field(2, none)), or()],
    ['a SingleConstraint merges', bytes(field(1, field(1, 'a')), field(1, field(2, '1'))), equal('a', '1')],
    [
      'the last value wins',
      bytes(field(1, bytes(field(1, 'a'), field(2, '0'))), field(1, field(2, '1'))),
      equal('a', '1'),
    ],
    ['exists after value wins', field(1, bytes(field(1, 'a'), field(2, '1'), field(3, none))), exists('a')],
    [
      'value after exists wins',
      field(1, bytes(field(3, none), field(1, 'a'), field(2, '1'))),
      equal('a', '1'),
    ],
    [
      'lists are joined',
      bytes(field(3, field(1, a1)), field(3, field(1, b2))),
      and(equal('a', '1'), equal('b', '2')),
    ],
    [
      'NOT merges',
      bytes(field(4, field(3, field(1, a1))), field(4, field(3, field(1, b2)))),
      not(and(equal('a', '1'), equal('b', '2'))),
    ],
    [
      'a member in between starts anew',
      bytes(field(3, field(1, a1)), field(2, none), field(3, field(1, b2))),
      and(equal('b', '2')),
    ],
  ];
  for (const [name, encoded, expected] of merges)
    it(`a oneof that comes twice, as protobuf has it: ${name}`, () => {
      expect(value(parseConstraints(encoded, 64)).key).to.equal(parse(expected).key);
    });

  it('two encodings joined read like protobuf reads them', () => {
    const property = fc.property(treeArbitrary, treeArbitrary, (left, right) => {
      const joined = bytes(encode(left), encode(right));
      const merged = fromBinary(DynamicParameterConstraintsSchema, joined);
      return value(parseConstraints(joined, 64)).key === parse(merged).key;
    });
    fc.assert(property, { numRuns: 2_000 });
  });

  const nested = (depth: number): Uint8Array => {
    let inner = new Uint8Array(0);
    for (let i = 1; i < depth; i++) inner = Uint8Array.from(field(4, inner));
    return inner;
  };

  it('§5 depth is bounded: as deep as allowed is read, one more is refused', () => {
    expect(parseConstraints(nested(64), 64).ok).to.equal(true);
    expect(reason(nested(65))).to.equal('constraints: nested deeper than 64');
    const lists = field(2, field(1, field(3, field(1, encode(equal('a', '1'))))));
    expect(parseConstraints(lists, 3).ok).to.equal(true);
    expect(reason(lists, 2)).to.include('deeper than 2');
  });

  it('§5 10,000 deep is refused without a stack overflow, whatever the limit', () => {
    const deep = nested(10_000);
    expect(reason(deep)).to.include('deeper than 64');
    expect(reason(deep, 1_000_000)).to.include('deeper than 1002');
    const deepest = value(parseConstraints(nested(1002), 1_000_000));
    expect(deepest.matches(NO_PARAMETERS)).to.equal(false);
  });

  it('§5 more than 2 MiB is refused, but for what was read before', () => {
    const long = field(1, Buffer.concat([field(1, 'a'), field(2, 'x'.repeat(2 * 1024 * 1024))]));
    expect(reason(long)).to.match(/^constraints: 20\d{5} bytes; at most 2097152 are read$/);
    expect(parseConstraints(long, maxStampedDepth).ok).to.equal(true);
  });

  it('wide lists are read', () => {
    const wide = parse(or(...Array.from({ length: 20_000 }, (_, i) => equal('a', String(i)))));
    expect(wide.matches(given({ a: '19999' }))).to.equal(true);
  });

  it('random and damaged bytes never throw', () => {
    const damaged = fc
      .tuple(treeArbitrary, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }))
      .map(([tree, flips]) => {
        const encoded = encode(tree);
        for (const [at, byte] of flips) if (encoded.length > 0) encoded[at % encoded.length] = byte;
        return encoded;
      });
    const property = fc.property(fc.oneof(fc.uint8Array({ maxLength: 64 }), damaged), (encoded) => {
      const result = parseConstraints(encoded, 64);
      if (result.ok) result.value.matches(NO_PARAMETERS);
      else expect(result.error).to.match(/^constraints: ./);
    });
    fc.assert(property, { numRuns: 20_000 });
  });
});
