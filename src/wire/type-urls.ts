import { knownTypes } from '../model/types.ts';
import { strictTextOf } from './fields.ts';

const known = knownTypes.map(({ url }) => ({ url, encoded: Buffer.from(url) }));

/**
 * A request's type_url. Nearly every request carries one of the known ones: told by its bytes it needs no new string,
 * and is equal to the stream's by being the same. A TypeError if it is not UTF-8.
 */
export function typeUrlOf(bytes: Buffer, start: number, end: number): string {
  const length = end - start;
  for (const { url, encoded } of known) {
    if (encoded.length !== length) continue;
    let rest = length; // they differ at their ends
    while (rest > 0 && encoded[rest - 1] === bytes[start + rest - 1]) rest--;
    if (rest === 0) return url;
  }
  return strictTextOf(bytes, start, end);
}
