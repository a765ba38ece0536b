import { randomBytes } from 'node:crypto';

/** Of this process: nobody outside can tell which texts have equal hashes, or equal sums of hashes. */
const seed = randomBytes(8);
const [key0, key1] = [seed.readInt32LE(0), seed.readInt32LE(4)];

/** HalfSipHash-1-3 of a 32-bit number and a text's UTF-16 units: 48 bits. Unlike seeded FNV, it stands chosen texts. */
export function keyedHash(number: number, text: string): number {
  const { length } = text;
  const pairs = length >>> 1;
  let v0 = key0;
  let v1 = key1 ^ 0xee;
  let v2 = key0 ^ 0x6c796765;
  let v3 = key1 ^ 0x74656462;
  let low = 0;
  // The number, the pairs of units, what is left of them with the length, and twice three rounds at the end.
  for (let step = -1; step <= pairs + 6; step++) {
    let word = 0;
    if (step < 0) word = number;
    else if (step < pairs) word = text.charCodeAt(2 * step) | (text.charCodeAt(2 * step + 1) << 16);
    else if (step === pairs) word = ((length & 1) === 0 ? 0 : text.charCodeAt(length - 1)) | (length << 16);
    else if (step === pairs + 1) v2 ^= 0xee;
    else if (step === pairs + 4) {
      low = (v1 ^ v3) >>> 0;
      v1 ^= 0xdd;
    }
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= word;
  }
  return low + ((v1 ^ v3) & 0xffff) * 2 ** 32;
}
