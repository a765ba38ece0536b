import { hash } from 'node:crypto';

/** Of the bytes of a resource: 16 hex digits. */
export function contentHash(bytes: Uint8Array | string): string {
  return hashOfDigest(contentDigest(bytes));
}

/** SHA-256 in hex: no two contents have the same, also where somebody tries. */
export function contentDigest(bytes: Uint8Array | string): string {
  return hash('sha256', bytes, 'hex');
}

/** The `contentHash` of the bytes with this `contentDigest`. */
export function hashOfDigest(digest: string): string {
  return digest.slice(0, 16);
}

/** A copy: a slice would pin the whole response that it came in. */
export function ownBytes(bytes: Uint8Array): Uint8Array {
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  return copy;
}
