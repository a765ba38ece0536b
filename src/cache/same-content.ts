import type { Variant } from '../model/resource.ts';
import type { Put, ResourceError } from '../model/transaction.ts';

/** Bytes decide, not versions: equal versions do not prove equal content, nor different ones a change (protocol §3.10). */
export function sameContent(variant: Variant, put: Put): boolean {
  if (put.payload !== undefined && put.payload.hash !== variant.payload?.hash) return false;
  return (
    sameBytes(variant.payload?.bytes, put.any) &&
    variant.doNotCache === put.doNotCache &&
    sameBytes(variant.metadata, put.metadata) &&
    variant.aliases.length === put.aliases.length &&
    variant.aliases.every((alias, index) => alias === put.aliases[index])
  );
}

export function sameError(a: ResourceError, b: ResourceError): boolean {
  return a.code === b.code && a.message === b.message && sameBytes(a.status, b.status);
}

function sameBytes(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && Buffer.compare(a, b) === 0;
}
