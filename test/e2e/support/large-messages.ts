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

/** As many of these as fit into so many bytes. */
export function filled(bytes: number, part: (index: number) => Buffer): Buffer {
  const parts: Buffer[] = [];
  let size = 0;
  for (let index = 0; ; index++) {
    const next = part(index);
    if (size + next.length > bytes) break;
    parts.push(next);
    size += next.length;
  }
  return Buffer.concat(parts);
}

/** The same over and over, as often as it fits into so many bytes. */
export const repeated = (bytes: number, part: Buffer): Buffer =>
  Buffer.alloc(bytes - (bytes % part.length), part);

export const many = (count: number, part: (index: number) => Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, index) => part(index)));

/** A different short name for each number. */
export const tiny = (index: number): string => index.toString(36);

/** An entry of a map<string, string>. */
export const entry = (number: number, key: string, value: string): Buffer =>
  field(number, field(1, key), field(2, value));

/** A ResourceLocator with these dynamic parameters. */
export const locator = (
  number: number,
  name: string,
  parameters: readonly (readonly [string, string])[],
): Buffer => field(number, field(1, name), ...parameters.map(([key, value]) => entry(2, key, value)));
