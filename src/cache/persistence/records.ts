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

/** A part of what is written or read: small enough to pass between threads without a pause. */
export interface RowBatch {
  readonly rows: readonly Row[];
  readonly payloads: readonly StoredPayload[];
}

/** Why an operation of the disk failed. */
export interface DiskError {
  readonly kind: 'locked' | 'read_only' | 'full' | 'corrupt' | 'io';
  readonly message: string;
}
