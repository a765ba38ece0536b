const closed =
  'nghttp2 forgets a stream that is closed, and drops what comes for it: the stream and the connection stay as they are';
const priorities = 'RFC 9113 §5.3.2 has deprecated priorities: nghttp2 reads nothing of such frames';
const noBody =
  'h2spec sends GET, and skips this where the answer has no body: nothing that is served by GET here has one';

/** The cases of h2spec that do not pass, each with the reason why that is right or harmless. */
export const h2specExceptions: ReadonlyMap<string, string> = new Map([
  [
    'http2/4.2: Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE',
    'h2spec sends 16,385 bytes whatever was announced: the relay announces 131,072 (see http2-settings.ts)',
  ],
  ['http2/5.1: closed: Sends a DATA frame after sending RST_STREAM frame', closed],
  ['http2/5.1: closed: Sends a HEADERS frame after sending RST_STREAM frame', closed],
  ['http2/5.1: closed: Sends a DATA frame', closed],
  ['http2/5.1: closed: Sends a HEADERS frame', closed],
  ['http2/5.1.1: Sends stream identifier that is numerically smaller than previous', closed],
  [
    'http2/5.1.2: Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded',
    'the relay answers each of these calls at once, so that there are never as many open as it allows',
  ],
  ['http2/5.3.1: Sends PRIORITY frame that depend on itself', priorities],
  ['http2/6.3: Sends a PRIORITY frame with 0x0 stream identifier', priorities],
  [
    'http2/6.7: Sends a PING frame with ACK',
    'Node closes a connection that acknowledges a PING which was never sent: stricter than h2spec wants it',
  ],
  [
    'http2/6.9.1: Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream',
    'the connection is closed, where closing the stream would do: whoever sends this is broken',
  ],
  ['http2/6.5.3: Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE', noBody],
  ['http2/6.9.1: Sends SETTINGS frame to set the initial window size to 1 and sends HEADERS frame', noBody],
  ['http2/6.9.2: Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame', noBody],
  ['http2/6.9.2: Sends a SETTINGS frame for window size to be negative', noBody],
]);

/**
 * These send a POST without a content type, and then a body with a fault. The relay answers such a request at once: when
 * the answer comes before the body is sent, the stream is closed, and what comes for it is dropped (see `closed`).
 */
export const h2specEitherWay: ReadonlySet<string> = new Set([
  'http2/6.1: Sends a DATA frame with invalid pad length',
  'http2/8.1.2.6: Sends a HEADERS frame with the "content-length" header field which does not equal the DATA frame payload length',
  'http2/8.1.2.6: Sends a HEADERS frame with the "content-length" header field which does not equal the sum of the multiple DATA frames payload length',
]);
