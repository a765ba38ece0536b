import { knownTypes } from '../model/types.ts';
import { textOf } from '../protobuf/message-reader.ts';

const known = knownTypes.map(({ url }) => ({ url, encoded: Buffer.from(url) }));

/**
 * The type_url that these bytes are. Nearly always it is a known one. That is found by comparing bytes, so that no
 * string is made and later comparisons are of one object with itself. A TypeError if it is not UTF-8.
 */
export function typeUrlAt(bytes: Buffer, start: number, end: number): string {
  const length = end - start;
  for (const { url, encoded } of known) {
    if (encoded.length !== length) continue;
    let rest = length; // they differ at their ends
    while (rest > 0 && encoded[rest - 1] === bytes[start + rest - 1]) rest--;
    if (rest === 0) return url;
  }
  return textOf(bytes, start, end);
}
