import type { ServerSessionOptions } from 'node:http2';

/**
 * How many connections may wait to be accepted. When a control plane's whole fleet reconnects at once, a full queue
 * drops SYNs and clients come back seconds later; the kernel caps it at net.core.somaxconn.
 */
export const backlog = 8192;

/** A connection that has no stream for so long is closed: a prober or worse. Milliseconds. */
export const idleTimeoutMs = 60_000;

/** The same while there are too many connections: a client that connects has something to ask. Milliseconds. */
export const idleTimeoutWhenFullMs = 10_000;

/** Milliseconds for a TLS handshake; Node's default is two minutes. */
export const handshakeTimeoutMs = 15_000;

/** What is written at once, in bytes: a client that reads so much within limits.stalled_timeout reads. */
export const largestPiece = 1 << 18;

/** TCP asks a silent client whether it is there, so that the streams of a machine that lost power end. Milliseconds. */
export const tcpKeepAlive = 60_000;

/** Of one connection. A client has one or two; a gRPC proxy in front of the relay brings those of a whole fleet. */
const maxStreamsPerConnection = 10_000;

/**
 * Receive window of a connection in bytes. Envoy repeats its 61 KB node in each request by default, so the 64 KB of
 * HTTP/2's default would let one stream of a proxied fleet hold up the others.
 */
export const connectionWindow = 1 << 20;

/**
 * The same for a Unix socket. Node reads nothing from a connection while a write to it is under way: two Node processes
 * that both have more to send than the socket takes would wait for each other for ever. What a client may have on its
 * way must fit into the socket's buffer (208 KB, Linux), then its writes end whatever we do.
 */
export const unixWindow = 65_535;

/**
 * Options of every session, each with its reason where it differs from Node's default. Node's limits of invalid frames
 * and of rejected streams do: another number costs each connection a buffer and a view of it.
 */
export const sessionOptions: ServerSessionOptions = {
  settings: {
    // Two of Envoy's default requests per stream and round trip; it costs nothing until it is used.
    initialWindowSize: 1 << 18,
    maxConcurrentStreams: maxStreamsPerConnection,
    // Advertised. A token in a header may have some KB.
    maxHeaderListSize: 32 << 10,
    // Envoy's node arrives in one frame instead of four, from clients that make use of it.
    maxFrameSize: 1 << 17,
    enablePush: false,
  },
  // Megabytes. It is a limit on what waits to be sent, too: Node's 10 MB refuses new streams behind one large response.
  // What waits here is shared frames, one for each stream at most, so max_response_bytes and max_streams bound it.
  maxSessionMemory: 4096,
  // A relay below resets each stream of its sessions once when it ends; more is the rapid reset attack (CVE-2023-44487).
  // Node opens all streams of the 64 KB that it reads at once, before anybody hears of the first, and more than so many
  // resets end the connection. A bound of 200 would make others wait 10 ms less, and would end those of proxies.
  streamResetBurst: 1000,
  streamResetRate: 200,
};
