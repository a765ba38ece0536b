import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { respondAndEnd, trailersOnly } from './grpc-status-headers.ts';

interface HttpRefusal {
  readonly status: GrpcStatus;
  /** 200 where a gRPC client is sure to read the grpc-status. */
  readonly http: number;
}

/** `application/grpc`, with a subtype or parameters; not `application/grpc-web`. */
const grpcContentType = /^application\/grpc(?:[+;]|$)/i;

/** Every service of xDS v2: discovery, load stats, accesslog and all. */
const v2Path = /^\/envoy\.(?:\w+\.)*v2(?:alpha)?\./;

/** Why a request to a hot path is not a gRPC call; undefined if it is. */
export function refusalOf(headers: IncomingHttpHeaders): HttpRefusal | undefined {
  const method = headers[':method'];
  if (method !== 'POST') {
    return { http: 405, status: { code: Code.INTERNAL, message: `method ${method} is not POST: gRPC is` } };
  }
  const contentType = headers['content-type'];
  if (contentType === undefined || !grpcContentType.test(contentType)) {
    const message = `content-type ${contentType ?? '(none)'} is not served here: application/grpc is`;
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
    : `${path} is not served here: ask the reflection service for what is`;
  const isGrpc = grpcContentType.test(headers['content-type'] ?? '');
  refuse(stream, { code: Code.UNIMPLEMENTED, message }, isGrpc ? 200 : 404);
}

/** Answers without a message and wants no more of the request. */
export function refuse(stream: ServerHttp2Stream, status: GrpcStatus, http = 200): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond(trailersOnly(status, http), respondAndEnd);
  closeSoon(stream);
}

/**
 * The client may still be sending: it is told to stop (RFC 9113 §8.1), but after what was submitted in this turn. Node
 * 24 submits trailers in an immediate of its own, and Node 26 sends a reset before the headers that it is to follow.
 */
export function closeSoon(stream: ServerHttp2Stream): void {
  setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
}
