/** What crosses between the thread that serves and the one that writes: plain data, no interned objects. */

/** A resource with its variants, an interest with its state, or the version of a holder's last response. */
export type RowKind = 'resource' | 'interest' | 'version';

export interface Row {
  readonly kind: RowKind;
  readonly type: string;
  /** Unique with kind and type. */
  readonly key: string;
  /** JSON; undefined: there is no such thing any more. */
  readonly body: string | undefined;
  /** Ids of the payloads that the body refers to by index. */
  readonly payloads: readonly number[];
}

export interface StoredPayload {
  readonly id: number;
  /** `Payload.hash`: a digest of the bytes, checked when they are loaded. */
  readonly hash: string;
  readonly bytes: Uint8Array;
}

/** Many of them in one piece of memory. */
export interface PackedPayloads {
  readonly ids: readonly number[];
  readonly hashes: readonly string[];
  /** Where each ends in `bytes`; the next begins there. */
  readonly ends: readonly number[];
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A part of what is written or loaded: small enough to pass between threads without a pause. */
export interface RowBatch {
  readonly rows: readonly Row[];
  readonly payloads: PackedPayloads;
}

/** Why the disk does not do what it is asked. */
export interface DiskError {
  readonly kind: 'locked' | 'read_only' | 'full' | 'corrupt' | 'io';
  readonly message: string;
}

/** A file that is not ours, or not whole any more: it is kept under another name. */
export interface SetAside {
  readonly file: string;
  readonly reason: string;
}

export interface Opened {
  /** What was committed last beside the rows; undefined: nothing was. */
  readonly state: string | undefined;
  readonly setAside: SetAside | undefined;
}

/** In this order: open, load or not, and any number of (begin, put…, commit); close. One at a time. */
export type DiskRequest =
  /** `discard`: the file turned out to be damaged, for this reason. */
  | { readonly kind: 'open'; readonly secrets: boolean; readonly discard: string | undefined }
  | { readonly kind: 'load' }
  /** `replace`: what is there goes; needed unless it was loaded before. */
  | { readonly kind: 'begin'; readonly replace: boolean }
  | { readonly kind: 'put'; readonly part: RowBatch }
  | { readonly kind: 'commit'; readonly state: string }
  | { readonly kind: 'close' };

export type DiskReply =
  | { readonly kind: 'opened'; readonly opened: Opened }
  /** Any number of them before a load is `done`: first the rows, then the payloads. */
  | { readonly kind: 'part'; readonly part: RowBatch }
  /** `dropped`: ids of payloads that nothing refers to any more. */
  | { readonly kind: 'committed'; readonly dropped: readonly number[] }
  | { readonly kind: 'done' }
  /** A transaction that was begun is taken back. */
  | { readonly kind: 'failed'; readonly error: DiskError };
