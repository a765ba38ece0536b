import { errorCode, explainError } from '../../wire/node-error.ts';

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

/** A part of what is written or read: small enough to pass between threads without a pause. */
export interface RowBatch {
  readonly rows: readonly Row[];
  /** `digest`: `contentDigest` of the bytes, what the payload is called on disk, checked when it is read. */
  readonly payloads: readonly { readonly digest: string; readonly bytes: Uint8Array }[];
}

/** Why an operation of the disk failed. */
export type DiskError = Pick<DiskProblem, 'kind' | 'message'>;

/** Trouble that is found by the relay, not by SQLite or the file system. */
export class DiskProblem extends Error {
  readonly kind: 'locked' | 'read_only' | 'full' | 'corrupt' | 'io';

  constructor(kind: DiskError['kind'], message: string) {
    super(message);
    this.kind = kind;
  }
}

/**
 * https://www.sqlite.org/rescode.html, the low byte. The statements are fixed and fit the tables and their constraints.
 * So an error in a statement (1), a broken constraint (19) or a value of another type (20) comes from a damaged file.
 */
const kindsByCode: Readonly<Record<number | string, DiskError['kind']>> = {
  1: 'corrupt',
  5: 'locked',
  6: 'locked',
  8: 'read_only',
  11: 'corrupt',
  13: 'full',
  19: 'corrupt',
  20: 'corrupt',
  26: 'corrupt',
  EROFS: 'read_only',
  EACCES: 'read_only',
  EPERM: 'read_only',
  ENOSPC: 'full',
  EDQUOT: 'full',
  // node:sqlite: a number is larger than any that was written.
  ERR_OUT_OF_RANGE: 'corrupt',
};

export const lockedText = 'another process has it open: each needs a directory of its own';

/** Everything that is thrown on the way to the disk, translated here. */
export function diskError(thrown: unknown): DiskError {
  if (thrown instanceof DiskProblem) return { kind: thrown.kind, message: thrown.message };
  if (thrown instanceof Error && 'errcode' in thrown && typeof thrown.errcode === 'number') {
    const kind = kindsByCode[thrown.errcode & 0xff] ?? 'io';
    if (kind === 'locked') return { kind, message: lockedText };
    return { kind, message: thrown.message };
  }
  // Of JSON.
  if (thrown instanceof SyntaxError) return { kind: 'corrupt', message: thrown.message };
  return { kind: kindsByCode[errorCode(thrown) ?? ''] ?? 'io', message: explainError(thrown) };
}
