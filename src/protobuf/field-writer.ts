import { bytesTag, doubleTag, varintTag } from './message-reader.ts';

/** A field whose size is known before anything is written, so that a response is one allocation and one pass. */
export type Field =
  | { readonly kind: 'bytes'; readonly tag: number; readonly body: Uint8Array }
  | { readonly kind: 'utf8'; readonly tag: number; readonly body: string; readonly length: number }
  | {
      readonly kind: 'message';
      readonly tag: number;
      readonly body: readonly Field[];
      readonly length: number;
    }
  | { readonly kind: 'varint'; readonly tag: number; readonly body: number }
  | { readonly kind: 'double'; readonly tag: number; readonly body: number }
  /** A field, or several, as they are encoded. */
  | { readonly kind: 'encoded'; readonly body: Uint8Array };

export function bytes(number: number, body: Uint8Array): Field {
  return { kind: 'bytes', tag: bytesTag(number), body };
}

export function utf8(number: number, body: string): Field {
  return { kind: 'utf8', tag: bytesTag(number), body, length: Buffer.byteLength(body) };
}

export function message(number: number, body: readonly Field[]): Field {
  return { kind: 'message', tag: bytesTag(number), body, length: sizeOf(body) };
}

export function varint(number: number, body: number): Field {
  return { kind: 'varint', tag: varintTag(number), body };
}

export function double(number: number, body: number): Field {
  return { kind: 'double', tag: doubleTag(number), body };
}

export function encoded(body: Uint8Array): Field {
  return { kind: 'encoded', body };
}

export function text(fields: Field[], number: number, body: string): void {
  if (body !== '') fields.push(utf8(number, body));
}

export function nested(fields: Field[], number: number, body: readonly Field[]): void {
  fields.push(message(number, body));
}

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size++;
  return size;
}

export function sizeOf(fields: readonly Field[]): number {
  let size = 0;
  // Every tag is one byte: no field of these messages has a number above 15.
  for (const field of fields) {
    if (field.kind === 'varint') {
      size += 1 + varintSize(field.body);
    } else if (field.kind === 'double') {
      size += 9;
    } else if (field.kind === 'encoded') {
      size += field.body.length;
    } else {
      const length = field.kind === 'bytes' ? field.body.length : field.length;
      size += 1 + varintSize(length) + length;
    }
  }
  return size;
}

/** A message with these fields. */
export function encode(fields: readonly Field[]): Buffer {
  const target = Buffer.allocUnsafeSlow(sizeOf(fields)); // it may be kept: it must not pin a slab
  write(target, 0, fields);
  return target;
}

/** Where the fields end, which are written from `at` on. */
export function write(target: Buffer, at: number, fields: readonly Field[]): number {
  let position = at;
  for (const field of fields) {
    if (field.kind === 'encoded') {
      target.set(field.body, position);
      position += field.body.length;
      continue;
    }
    target[position++] = field.tag;
    if (field.kind === 'double') {
      position = target.writeDoubleLE(field.body, position);
      continue;
    }
    if (field.kind === 'varint') {
      position = writeVarint(target, position, field.body);
      continue;
    }
    const length = field.kind === 'bytes' ? field.body.length : field.length;
    position = writeVarint(target, position, length);
    if (field.kind === 'message') {
      position = write(target, position, field.body);
    } else {
      if (field.kind === 'bytes') target.set(field.body, position);
      else target.write(field.body, position);
      position += length;
    }
  }
  return position;
}

/** The beginning of a field of which so many bytes follow. */
export function headOf(tag: number, length: number): Buffer {
  const head = Buffer.allocUnsafe(varintSize(tag) + varintSize(length));
  writeVarint(head, writeVarint(head, 0, tag), length);
  return head;
}

function writeVarint(target: Buffer, at: number, value: number): number {
  let position = at;
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) target[position++] = (rest % 128) | 128;
  target[position++] = rest;
  return position;
}
