import type { Random } from '../support/random.ts';

/** Bytes that parsers trip over: the ends of ranges, invalid UTF-8, tags, lengths that lie. */
const spikes: readonly Buffer[] = [
  '00',
  '7f',
  '80',
  'ff',
  'ffffffffffffffffff01',
  'ffffffff0f',
  '8080808000', // varints at and past their ends
  '0a',
  '0b',
  '0c',
  '12',
  '1a',
  '3a',
  '42',
  '4a', // tags of messages, of the old groups too
  'c080',
  'eda080',
  'f4908080',
  'efbbbf', // UTF-8 that is none, and a byte order mark
].map((hex) => Buffer.from(hex, 'hex'));

const words: readonly Buffer[] = [
  '__proto__',
  'constructor',
  '*',
  '',
  'xdstp://',
  'xdstp://a/b/*?x=%',
  '${HOME}',
  '${',
  '&a *a',
  '\u202e',
  '\n',
  '{',
  '[',
].map((text) => Buffer.from(text));

type Mutation = (bytes: Buffer, random: Random, corpus: readonly Buffer[]) => Buffer;

const cut = (bytes: Buffer, random: Random): [number, number] => {
  const start = random.below(bytes.length + 1);
  return [start, Math.min(bytes.length, start + random.below(random.chance(0.8) ? 16 : 512))];
};

const insert = (bytes: Buffer, at: number, piece: Buffer): Buffer =>
  Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at)]);

const mutations: readonly Mutation[] = [
  function flip(bytes, random) {
    const copy = Buffer.from(bytes);
    if (copy.length > 0) copy[random.below(copy.length)] = random.below(256);
    return copy;
  },
  function bit(bytes, random) {
    const copy = Buffer.from(bytes);
    const at = random.below(copy.length);
    if (copy.length > 0) copy[at] = (copy[at] ?? 0) ^ (1 << random.below(8));
    return copy;
  },
  function remove(bytes, random) {
    const [start, end] = cut(bytes, random);
    return Buffer.concat([bytes.subarray(0, start), bytes.subarray(end)]);
  },
  function truncate(bytes, random) {
    return bytes.subarray(0, random.below(bytes.length + 1));
  },
  function repeat(bytes, random) {
    const [start, end] = cut(bytes, random);
    const piece = bytes.subarray(start, end);
    const times = random.chance(0.02) ? 2000 : 1 + random.below(8);
    return insert(bytes, end, Buffer.concat(Array.from({ length: times }, () => piece)));
  },
  function spike(bytes, random) {
    return insert(bytes, random.below(bytes.length + 1), random.pick(spikes));
  },
  function word(bytes, random) {
    return insert(bytes, random.below(bytes.length + 1), random.pick(words));
  },
  function splice(bytes, random, corpus) {
    const other = random.pick(corpus);
    const [start, end] = cut(other, random);
    return insert(bytes, random.below(bytes.length + 1), other.subarray(start, end));
  },
  function overwrite(bytes, random, corpus) {
    const other = random.pick(corpus);
    const [start, end] = cut(other, random);
    const at = random.below(bytes.length + 1);
    return Buffer.concat([
      bytes.subarray(0, at),
      other.subarray(start, end),
      bytes.subarray(at + end - start),
    ]);
  },
  function nest(bytes, random) {
    const tag = random.pick([0x0a, 0x12, 0x1a, 0x22, 0x2a, 0x32]);
    let nested = bytes.subarray(0, 2000);
    for (
      let depth = random.chance(0.1) ? 3000 : 1 + random.below(120);
      depth > 0 && nested.length < 20_000;
      depth--
    ) {
      nested = Buffer.concat([Buffer.of(tag), varint(nested.length), nested]);
    }
    return nested;
  },
  function join(bytes, random, corpus) {
    return Buffer.concat([bytes, random.pick(corpus)]);
  },
];

/** One of the corpus, changed in one to four places. */
export function mutate(corpus: readonly Buffer[], random: Random): Buffer {
  let bytes = random.pick(corpus);
  for (let count = 1 + random.below(4); count > 0; count--) {
    bytes = random.pick(mutations)(bytes, random, corpus);
    if (bytes.length > longest) bytes = bytes.subarray(0, longest);
  }
  return bytes;
}

/** What is tried is about structure; size has tests of its own. */
const longest = 65_536;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 0x7f) {
    bytes.push((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  return Buffer.from([...bytes, rest]);
}
