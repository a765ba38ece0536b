import type { OutgoingHttpHeaders } from 'node:http2';
import { Code, type GrpcStatus } from './grpc-status.ts';

/** Of `grpc-message` as encoded: clients refuse header lists of more than 8 KiB, and logs are no place for novels. */
const longestMessage = 1024;
const ellipsis = '...';

/**
 * Percent-encoded UTF-8 as the gRPC specification wants it: only printable ASCII without `%` stays. Cut to about 1 KB,
 * between characters.
 */
export function encodeGrpcMessage(message: string): string {
  let encoded = '';
  for (const character of message) {
    const code = character.charCodeAt(0);
    const plain = code >= 0x20 && code <= 0x7e && character !== '%';
    const next = plain ? character : percent(character);
    if (encoded.length + next.length > longestMessage - ellipsis.length) return encoded + ellipsis;
    encoded += next;
  }
  return encoded;
}

function percent(character: string): string {
  let encoded = '';
  for (const byte of Buffer.from(character)) {
    encoded += `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}

export function statusTrailers(status: GrpcStatus): OutgoingHttpHeaders {
  const trailers: OutgoingHttpHeaders = { 'grpc-status': String(status.code) };
  if (status.message !== '') trailers['grpc-message'] = encodeGrpcMessage(status.message);
  // The specification asks for it when a compressed message is refused.
  if (status.code === Code.UNIMPLEMENTED) trailers['grpc-accept-encoding'] = 'identity';
  return trailers;
}

/** A whole response without a message: status and trailers in one header block. */
export function trailersOnly(status: GrpcStatus, httpStatus = 200): OutgoingHttpHeaders {
  return { ':status': httpStatus, 'content-type': 'application/grpc', ...statusTrailers(status) };
}

/** How `trailersOnly` is sent; nobody reads the date. */
export const respondAndEnd = { endStream: true, sendDate: false } as const;
