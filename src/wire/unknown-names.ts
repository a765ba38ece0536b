import { Code } from './grpc-status.ts';
import { encodeStatus } from './responses.ts';

/**
 * Client feature of a relay that is told, in full-state SotW responses, which names are unknown: a resource error with
 * UNKNOWN_STATUS for each (protocol §3.13). To it, what such a response lacks and does not say is unknown is absent.
 */
export const UNKNOWN_NAMES = 'distributary.unknown-names';

/** The google.rpc.Status of these resource errors. It goes from a relay to a relay, and never further. */
export const UNKNOWN_STATUS = encodeStatus(Code.UNAVAILABLE, 'distributary: not known yet');

export function isUnknownName({ status }: { readonly status: Uint8Array }): boolean {
  return status.length === UNKNOWN_STATUS.length && Buffer.compare(status, UNKNOWN_STATUS) === 0;
}
