/** Frames of HTTP/2 (RFC 9113 §6) as bytes, right or wrong as the attack wants them. */

export const Type = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

export const Flag = { END_STREAM: 1, ACK: 1, END_HEADERS: 4, PADDED: 8, PRIORITY: 32 } as const;

export const Setting = {
  HEADER_TABLE_SIZE: 1,
  ENABLE_PUSH: 2,
  MAX_CONCURRENT_STREAMS: 3,
  INITIAL_WINDOW_SIZE: 4,
  MAX_FRAME_SIZE: 5,
} as const;

export const ErrorCode = {
  NO_ERROR: 0,
  PROTOCOL_ERROR: 1,
  INTERNAL_ERROR: 2,
  FLOW_CONTROL_ERROR: 3,
  STREAM_CLOSED: 5,
  FRAME_SIZE_ERROR: 6,
  REFUSED_STREAM: 7,
  CANCEL: 8,
  COMPRESSION_ERROR: 9,
  ENHANCE_YOUR_CALM: 11,
} as const;

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
export const frameHeader = 9;

/** `length`: what the frame says of itself, if not the truth. */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Uint8Array = new Uint8Array(),
  length: number = payload.length,
): Buffer {
  const bytes = Buffer.alloc(frameHeader + payload.length);
  bytes.writeUIntBE(length, 0, 3);
  bytes[3] = type;
  bytes[4] = flags;
  bytes.writeUInt32BE(stream, 5);
  bytes.set(payload, frameHeader);
  return bytes;
}

export function uint32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, at) => bytes.writeUInt32BE(value, 4 * at));
  return bytes;
}

export const data = (stream: number, payload: Uint8Array, flags = 0): Buffer =>
  frame(Type.DATA, flags, stream, payload);
export const reset = (stream: number, code: number = ErrorCode.CANCEL): Buffer =>
  frame(Type.RST_STREAM, 0, stream, uint32(code));
export const ping = (): Buffer => frame(Type.PING, 0, 0, Buffer.from('attack!!'));
export const windowUpdate = (stream: number, increment: number): Buffer =>
  frame(Type.WINDOW_UPDATE, 0, stream, uint32(increment));
export const priority = (stream: number, dependsOn: number, weight = 15): Buffer =>
  frame(Type.PRIORITY, 0, stream, Buffer.concat([uint32(dependsOn), Buffer.of(weight)]));
export const goaway = (lastStream: number, code: number): Buffer =>
  frame(Type.GOAWAY, 0, 0, uint32(lastStream, code));

/** Pairs of identifier and value. */
export function settings(...pairs: readonly (readonly [number, number])[]): Buffer {
  const payload = pairs.map(([id, value]) => Buffer.concat([Buffer.of(id >> 8, id & 0xff), uint32(value)]));
  return frame(Type.SETTINGS, 0, 0, Buffer.concat(payload));
}

export type Fields = readonly (readonly [name: string, value: string])[];

/** HEADERS with everything in it, or its beginning: without END_HEADERS in `flags`, CONTINUATION is due. */
export function headers(stream: number, block: Uint8Array, flags: number = Flag.END_HEADERS): Buffer {
  return frame(Type.HEADERS, flags, stream, block);
}

/** HPACK (RFC 7541): each field a literal without indexing, nothing compressed. */
export function block(fields: Fields): Buffer {
  return Buffer.concat(fields.map(([name, value]) => literal(0x00, name, value)));
}

/** A literal that enters the dynamic table; `indexed(62)` is the last one that did. */
export const remembered = (name: string, value: string): Buffer => literal(0x40, name, value);

export function indexed(index: number): Buffer {
  return integer(0x80, 7, index);
}

export const tableSize = (bytes: number): Buffer => integer(0x20, 5, bytes);

/** An integer in the last `bits` of a first byte and what follows it (RFC 7541 §5.1). */
export function integer(first: number, bits: number, value: number): Buffer {
  const most = 2 ** bits - 1;
  if (value < most) return Buffer.of(first | value);
  const bytes = [first | most];
  let rest = value - most;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) + 0x80);
    rest = Math.floor(rest / 0x80);
  }
  return Buffer.of(...bytes, rest);
}

function literal(kind: number, name: string, value: string): Buffer {
  return Buffer.concat([Buffer.of(kind), text(name), text(value)]);
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  return Buffer.concat([integer(0, 7, bytes.length), bytes]);
}

/** The fields of a gRPC call. */
export function callFields(path: string, more: Fields = []): Fields {
  return [
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', path],
    [':authority', 'relay.test'],
    ['content-type', 'application/grpc'],
    ['te', 'trailers'],
    ...more,
  ];
}

export const ADS = '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources';
