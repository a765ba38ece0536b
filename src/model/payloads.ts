import { hash } from 'node:crypto';
import type { Constraints } from './constraints.ts';
import type { Payload } from './resource.ts';

/** Bodies, equal ones once: of all cached resources, or of a history. */
export class Payloads {
  readonly #entries = new Map<string, { readonly payload: Payload; references: number }>();
  #bytes = 0;

  /** Bytes of the distinct payloads in use. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Nothing else in use has it. */
  isOnce({ hash }: Payload): boolean {
    return this.#entries.get(hash)?.references === 1;
  }

  /** The payload of these bytes, copied: a slice would pin the whole response that it came in. */
  acquire(bytes: Uint8Array): Payload {
    return this.adopt(bytes, contentHash(bytes));
  }

  /** The same for bytes whose digest is known. */
  adopt(bytes: Uint8Array, digest: string): Payload {
    const known = this.#entries.get(digest);
    // Two different contents with one digest are very unlikely. They are not shared.
    if (known !== undefined && Buffer.compare(known.payload.bytes, bytes) === 0) {
      known.references++;
      return known.payload;
    }
    return this.#add({ bytes: ownBytes(bytes), hash: digest }, known === undefined);
  }

  /** The same for a payload that nobody will change. */
  share(payload: Payload): Payload {
    const known = this.#entries.get(payload.hash);
    if (known === undefined) return this.#add(payload, true);
    if (known.payload === payload) {
      known.references++;
      return payload;
    }
    return this.adopt(payload.bytes, payload.hash);
  }

  /** One more reference to a payload that is cached. */
  retain(payload: Payload | undefined): void {
    if (payload === undefined) return;
    const known = this.#entries.get(payload.hash);
    if (known?.payload === payload) known.references++;
    else this.#add(payload, known === undefined);
  }

  #add(payload: Payload, isFirst: boolean): Payload {
    if (isFirst) this.#entries.set(payload.hash, { payload, references: 1 });
    this.#bytes += payload.bytes.length;
    return payload;
  }

  release(payload: Payload | undefined): void {
    if (payload === undefined) return;
    const known = this.#entries.get(payload.hash);
    if (known === undefined || known.payload !== payload) {
      this.#bytes -= payload.bytes.length;
      return;
    }
    if (--known.references > 0) return;
    this.#entries.delete(payload.hash);
    this.#bytes -= payload.bytes.length;
  }
}

const emptyHash = contentHash(new Uint8Array());

/**
 * The version that delta clients see: the upstream's, and a digest of all that they can see of the variant, because
 * upstreams leave versions empty or use them again (protocol §4.1). A suffix of ours from a relay above is kept.
 */
export function deltaVersionOf(
  version: string,
  constraints: Constraints,
  payload: Payload | undefined,
  aliases: readonly string[],
  metadata: Uint8Array | undefined,
): string {
  let digest = payload?.hash ?? emptyHash;
  if (constraints.key !== '' || aliases.length > 0 || metadata !== undefined) {
    const rest = metadata === undefined ? '' : contentHash(metadata);
    digest = contentHash(JSON.stringify([digest, constraints.key, aliases, rest]));
  }
  return version.endsWith(`@${digest}`) ? version : `${version}@${digest}`;
}

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
