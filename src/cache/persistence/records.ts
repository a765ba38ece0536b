/** What crosses between the thread that serves and the one that writes: plain data, no interned objects. */

/** A resource with its variants, an interest with its state, the version of a holder's last response, or a change. */
export type RowKind = 'resource' | 'interest' | 'version' | 'change';

export interface Row {
  readonly kind: RowKind;
  readonly type: string;
  /** Unique with kind and type. */
  readonly key: string;
  /** JSON; undefined: there is no such thing any more. */
  readonly body: string | undefined;
  /** The digests of the payloads that the body names, each once. Only for writing: reading, they are in the body. */
  readonly payloads: readonly string[];
}

export interface StoredPayload {
  /** `contentDigest` of the bytes: what the payload is called on disk, checked when it is read. */
  readonly digest: string;
  readonly bytes: Uint8Array;
}

/** Many of them in one piece of memory. */
export interface PackedPayloads {
  readonly digests: readonly string[];
  /** Where each ends in `bytes`; the next begins there. */
  readonly ends: readonly number[];
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A part of what is written or read: small enough to pass between threads without a pause. */
export interface RowBatch {
  readonly rows: readonly Row[];
  readonly payloads: PackedPayloads;
}

/** Why an operation of the disk failed. */
export interface DiskError {
  readonly kind: 'locked' | 'read_only' | 'full' | 'corrupt' | 'io';
  readonly message: string;
}

/** A file of another program or a damaged one: it was renamed. */
export interface SetAside {
  readonly file: string;
  readonly reason: string;
}

/** Gathers payloads into one piece of memory, which another thread takes over without a copy. */
export class Packer {
  #payloads: StoredPayload[] = [];
  #bytes = 0;

  /** Bytes so far. */
  get size(): number {
    return this.#bytes;
  }

  add(payload: StoredPayload): void {
    this.#payloads.push(payload);
    this.#bytes += payload.bytes.length;
  }

  take(): PackedPayloads {
    const bytes = new Uint8Array(this.#bytes);
    const ends: number[] = [];
    let end = 0;
    for (const payload of this.#payloads) {
      bytes.set(payload.bytes, end);
      end += payload.bytes.length;
      ends.push(end);
    }
    const digests = this.#payloads.map(({ digest }) => digest);
    this.#payloads = [];
    this.#bytes = 0;
    return { digests, ends, bytes };
  }
}

/** Views into the piece of memory. */
export function* unpack({ digests, ends, bytes }: PackedPayloads): Iterable<StoredPayload> {
  let start = 0;
  for (const [index, digest] of digests.entries()) {
    const end = ends[index] ?? start;
    yield { digest, bytes: bytes.subarray(start, end) };
    start = end;
  }
}
