/** Encoded messages as large as a peer may send, written by hand: to make objects of a million names takes too long. */

/** A length-delimited field. */
export function field(number: number, ...content: readonly (Buffer | string)[]): Buffer {
  const parts = content.map((part) => (typeof part === 'string' ? Buffer.from(part) : part));
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  return Buffer.concat([varint(number * 8 + 2), varint(length), ...parts]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return Buffer.from([...bytes, rest]);
}
