import type { Code } from '../wire/grpc-status.ts';

/** Why clients are refused: the `reason` of downstream_rejected_total, from 0 on. */
// biome-ignore format: a table, one reason a line
export const rejections = new Map<string, {
  /** How the RPC ends. `undefined`: no RPC ends, because a connection is closed, or reading pauses. */
  readonly code: keyof typeof Code | undefined;
  /** Of a limit, or of clients that would be refused at any time: who they are, or what they send, is not accepted. */
  readonly because?: 'LIMIT' | 'CLIENT';
  /** For docs/reference/errors.md. */
  readonly means: string;
}>([
  ['malformed', { code: 'INVALID_ARGUMENT', because: 'CLIENT', means: 'a request that cannot be read' }],
  ['node', { code: 'INVALID_ARGUMENT', because: 'CLIENT', means: 'a node that cannot be read' }],
  ['no_node', { code: 'INVALID_ARGUMENT', because: 'CLIENT', means: 'the first request of a stream has no node' }],
  ['type', { code: 'INVALID_ARGUMENT', because: 'CLIENT', means: 'no type_url, or a type that is not the type of the service' }],
  ['denied', { code: 'PERMISSION_DENIED', because: 'CLIENT', means: 'xds.authorization allows nothing that is asked for' }],
  ['request_bytes', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'a request is larger than limits.max_request_bytes, or limits.max_poll_bytes over REST' }],
  ['response_bytes', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'the response would be larger than limits.max_response_bytes, over REST as JSON' }],
  ['subscriptions', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'more names than limits.max_subscriptions_per_stream, or names that are too long' }],
  ['streams', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'limits.max_streams are open' }],
  ['streams_per_peer', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'limits.max_streams_per_peer are open' }],
  ['calls', { code: 'RESOURCE_EXHAUSTED', means: 'too many calls of health, reflection or CSDS' }],
  ['rate', { code: undefined, because: 'LIMIT', means: 'more changes of subscriptions, or of the node of load reports, than limits.subscription_changes_per_second: reading pauses, and nothing is lost. A poll is refused with RESOURCE_EXHAUSTED' }],
  ['held_bytes', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'what the relay would hold for this peer alone is more than limits.max_held_bytes_per_peer, or for all such peers more than limits.max_held_bytes' }],
  ['certificate_expired', { code: undefined, because: 'CLIENT', means: "a TLS handshake failed, because the client's certificate is no longer valid" }],
  ['certificate_ended', { code: 'UNAUTHENTICATED', means: "a connection ended together with its client's certificate, or a resumed TLS session was not accepted because the certificate of that session has ended: the client connects again, by a full handshake with its present certificate" }],
  ['certificate_untrusted', { code: undefined, because: 'CLIENT', means: 'a TLS handshake failed, because no authority in ca vouches for the client\'s certificate, or the certificate is not valid for another reason than its end' }],
  ['certificate_missing', { code: undefined, because: 'CLIENT', means: 'a TLS handshake failed, because the client sent no certificate, and require_client_certificate asks for one' }],
  ['certificate_unknown_issuer', { code: undefined, means: "a resumed TLS session was not accepted, because the relay does not know yet who issued the client's certificate: the client connects again, by a full handshake" }],
  ['stalled', { code: 'RESOURCE_EXHAUSTED', means: 'the client has not read for limits.stalled_timeout' }],
  ['half_sent', { code: 'DEADLINE_EXCEEDED', means: 'a request took longer than limits.stalled_timeout to arrive. With RESOURCE_EXHAUSTED: it was among the largest while such requests held too much memory' }],
  ['waiting', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'too many requests wait for their turn, of this peer or of all together (limits.max_work_per_peer): ask again later' }],
  ['first_request', { code: 'DEADLINE_EXCEEDED', means: 'no request came within limits.first_request_timeout' }],
  ['draining', { code: 'UNAVAILABLE', means: 'the relay is shutting down: connect to another one' }],
  ['rules', { code: 'UNAVAILABLE', means: 'new parameter rules need a part of the node that the relay no longer has, or locators have other trusted parameters: connect again' }],
  ['cold', { code: 'UNAVAILABLE', means: 'nothing is cached, and no control plane can be reached' }],
  ['unknown', { code: 'UNAVAILABLE', means: 'a poll for what the control plane has not answered yet: ask again' }],
  ['upstream_sessions', { code: 'RESOURCE_EXHAUSTED', because: 'LIMIT', means: 'more parameter sets than limits.max_upstream_sessions, or than the share of a stream or peer' }],
  ['loop', { code: 'FAILED_PRECONDITION', means: 'a relay would subscribe to itself' }],
  ['connections', { code: undefined, because: 'LIMIT', means: 'limits.max_connections are open: the connection is closed' }],
  ['connections_per_peer', { code: undefined, because: 'LIMIT', means: 'limits.max_connections_per_peer are open: the connection is closed' }],
  ['idle', { code: undefined, means: 'a connection had no stream for a minute: it is closed' }],
]);
