import { errorMessage } from '../model/result.ts';

/** What the operating system, TLS and HTTP/2 say in codes, in words that name what to look at. */
const meanings: ReadonlyMap<string, string> = new Map([
  ['EADDRINUSE', 'the address is in use: another process listens there'],
  ['EADDRNOTAVAIL', 'no interface of this machine has that address'],
  ['EACCES', 'permission denied'],
  ['EPERM', 'not permitted'],
  ['ENOENT', 'there is no such file or directory'],
  ['EEXIST', 'something else with that name is in the way'],
  ['ENOTDIR', 'a part of the path is not a directory'],
  ['EISDIR', 'it is a directory'],
  ['ENAMETOOLONG', 'the path is too long'],
  ['EMFILE', 'too many open files: raise the limit (ulimit -n)'],
  ['ENFILE', 'too many open files on this machine'],
  ['ENOSPC', 'no space is left on the device'],
  ['EROFS', 'the file system is read-only'],
  ['ECONNREFUSED', 'connection refused: nothing listens there'],
  ['ECONNRESET', 'the other end closed the connection'],
  ['ECONNABORTED', 'the connection was aborted'],
  ['EPIPE', 'the other end closed the connection'],
  ['ETIMEDOUT', 'timed out'],
  ['EHOSTUNREACH', 'no route to the host'],
  ['ENETUNREACH', 'no route to the network'],
  ['ENOTFOUND', 'the host name does not exist'],
  ['EAI_AGAIN', 'the name server did not answer'],
  ['EINVAL', 'invalid argument'],
  ['ERR_OSSL_X509_KEY_VALUES_MISMATCH', 'the private key does not belong to the certificate'],
  ['ERR_OSSL_PEM_NO_START_LINE', 'it is not PEM'],
  ['ERR_OSSL_UNSUPPORTED', 'the key or certificate cannot be read (wrong format or a password)'],
  ['ERR_SSL_NO_SHARED_CIPHER', 'no TLS cipher in common'],
  ['ERR_SSL_HTTP_REQUEST', 'plain HTTP was spoken to a TLS port'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'one end of the connection speaks TLS, and the other does not'],
  ['ERR_SSL_NO_APPLICATION_PROTOCOL', 'the client does not offer HTTP/2 (ALPN h2)'],
  ['ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE', 'the client sent no certificate'],
  [
    'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED',
    'the other end requires a client certificate, and none was sent',
  ],
  ['HPE_INVALID_CONSTANT', 'the other end does not speak HTTP/1.1'],
  ['CERT_HAS_EXPIRED', 'the certificate has expired'],
  ['CERT_NOT_YET_VALID', 'the certificate is not valid yet'],
  ['DEPTH_ZERO_SELF_SIGNED_CERT', 'the certificate is self-signed and not trusted'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'the certificate chain ends with an authority that is not trusted'],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'the authority that issued the certificate is not trusted'],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'the authority that issued the certificate is not trusted'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'the certificate is for another name'],
]);

/** `EADDRINUSE` and the like, of whatever was thrown or emitted. */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/** One sentence for people: the meaning where it is known, and the code or message that came, to search for. */
export function explainError(error: unknown): string {
  const code = errorCode(error);
  const said = errorMessage(error);
  if (code === undefined) return said;
  const meaning = meanings.get(code);
  return meaning === undefined ? (tlsReason(said) ?? said) : `${meaning} (${code})`;
}

/**
 * OpenSSL's reason, in `…:error:0A000415:SSL routines:ssl3_read_bytes:ssl/tls alert certificate expired:…`. An alert is
 * what the other end says; its first words differ with the version of TLS.
 */
function tlsReason(said: string): string | undefined {
  const reason = /^(?:write EPROTO )?[\dA-F]+:error:[\dA-F]+:[^:]*:[^:]*:([^:]+):/.exec(said)?.[1];
  if (reason === undefined) return undefined;
  if (reason === 'wrong version number') return meanings.get('ERR_SSL_WRONG_VERSION_NUMBER');
  const alert = /^\S+ alert (.*)$/.exec(reason)?.[1];
  if (alert === undefined) return `TLS: ${reason}`;
  if (alert === 'certificate required') return meanings.get('ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED');
  return /certificate|unknown ca/.test(alert)
    ? `the other end refuses the certificate that it was shown: ${alert}`
    : `the other end refuses the TLS handshake: ${alert}`;
}

/** With TLS 1.3 a server looks at the client certificate after the client's handshake, and grpc-js does not know why. */
const closedAtOnce =
  'the control plane closes each new connection: it refuses the client certificate, requires one, or does not speak HTTP/2';

/**
 * The reason in grpc-js's words for a connection that failed. Without what differs from try to try, times and OpenSSL's
 * thread: the same reason must be the same text, or each retry would be logged as a change.
 */
export function explainConnect(details: string): string {
  const [, said = details, note = ''] =
    /^No connection established\. Last error: (.*)\. Resolution note: (.*)$/s.exec(details) ?? [];
  const lasting = said.replaceAll(/\s*\(\d{4}-\d\d-\d\dT[\d:.]+Z\)/g, '').trim();
  const code = /\bE[A-Z]{4,}\b/.exec(lasting)?.[0];
  const meaning = code === undefined ? undefined : meanings.get(code);
  const reason =
    tlsReason(lasting) ??
    (meaning !== undefined
      ? `${meaning} (${code})`
      : lasting
          .replace(/\bcertificate has expired/, "the control plane's certificate has expired")
          .replace(/^Failed to connect$/, closedAtOnce)
          .replace(/^Error(?: \[\w+\])?: /, ''));
  return note === '' ? reason : `${reason}. ${note}`;
}

/**
 * For 'error' of a socket or a stream, whose 'close' follows and is heard. Without any listener the process would end,
 * whoever has the socket at that time.
 */
export function ignoreError(): void {}

const disconnects: ReadonlySet<string | undefined> = new Set([
  'ECONNRESET',
  'EPIPE',
  'ECONNABORTED',
  'ETIMEDOUT',
]);

/** A peer that went away: daily business of a server, not worth a report. connect-node has it as the cause of its own. */
export function isDisconnect(error: unknown): boolean {
  const { cause } = error instanceof Error ? error : {};
  return disconnects.has(errorCode(error)) || disconnects.has(errorCode(cause));
}
