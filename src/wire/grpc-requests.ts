import {
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { Code, type GrpcStatus } from './grpc-status.ts';

/** `application/grpc`, with a subtype or parameters; not `application/grpc-web`. */
const grpcContentType = /^application\/grpc(?:[+;]|$)/i;

/** Every service of xDS v2: discovery, load stats, accesslog and all. */
const v2Path = /^\/envoy\.(?:\w+\.)*v2(?:alpha)?\./;

/** Why a request to a hot path is not a gRPC call; undefined if it is. `http`: 200 where a gRPC client is sure to read the status. */
export function refusalOf(
  headers: IncomingHttpHeaders,
): { readonly status: GrpcStatus; readonly http: number } | undefined {
  const method = headers[':method'];
  if (method !== 'POST') {
    return {
      http: 405,
      status: { code: Code.INTERNAL, message: `method ${method} is not supported: gRPC uses POST` },
    };
  }
  const contentType = headers['content-type'];
  if (contentType === undefined || !grpcContentType.test(contentType)) {
    const message = `content-type ${contentType ?? '(none)'} is not supported here: use application/grpc`;
    return { http: 415, status: { code: Code.INTERNAL, message } };
  }
  // Something between that drops trailers shows itself by dropping this: the status would never arrive.
  if (!/\btrailers\b/i.test(String(headers['te'] ?? ''))) {
    const message =
      'the header "te: trailers" is missing: is there a proxy in between that does not speak HTTP/2?';
    return { http: 200, status: { code: Code.INVALID_ARGUMENT, message } };
  }
  return undefined;
}

/** A path that nobody serves. */
export function refuseUnknown(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
  const path = headers[':path'] ?? '';
  const message = v2Path.test(path)
    ? `${path}: xDS v2 was removed: use v3`
    : `${path} is not served here: the reflection service lists what is`;
  const isGrpc = grpcContentType.test(headers['content-type'] ?? '');
  refuse(stream, { code: Code.UNIMPLEMENTED, message }, isGrpc ? 200 : 404);
}

/** Answers without a message and wants no more of the request. */
export function refuse(stream: ServerHttp2Stream, status: GrpcStatus, http = 200): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond(trailersOnly(status, http), respondAndEnd);
  closeSoon(stream);
}

/** A list, because Node copies an object for each response. */
const responseHeaders: readonly string[] = [':status', '200', 'content-type', 'application/grpc'];
const respondOptions = { waitForTrailers: true, sendDate: false } as const;

/** Messages follow, and then `endAnswer`. */
export function beginAnswer(stream: ServerHttp2Stream): void {
  stream.respond(responseHeaders, respondOptions);
}

/** With a last message. Trailers come after all that was written. */
export function endAnswer(stream: ServerHttp2Stream, status: GrpcStatus, frame?: Buffer): void {
  stream.once('wantTrailers', () => {
    stream.sendTrailers(statusTrailers(status));
    closeSoon(stream);
  });
  stream.end(frame);
}

/**
 * The client may still be sending: it is told to stop (RFC 9113 §8.1), but after what was submitted in this turn. Node
 * 24 submits trailers in an immediate of its own, and Node 26 sends a reset before the headers that it is to follow.
 */
function closeSoon(stream: ServerHttp2Stream): void {
  setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
}

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

const percent = (character: string): string =>
  Buffer.from(character).toString('hex').toUpperCase().replaceAll(/../g, '%$&');

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
const respondAndEnd = { endStream: true, sendDate: false } as const;
