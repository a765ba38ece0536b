import type { TypeUrl } from '../../model/brand.ts';
import type { Result } from '../../model/result.ts';
import type { DiskError, Opened, RowBatch } from './records.ts';

/**
 * What the thread of the disk does, stated once: the proxy (`WorkerDisk`) and the dispatcher (`DiskServer`) are derived
 * from it. In this order: open; read until there is no more, or not at all; any number of (begin, put…, commit); close.
 * One at a time. Where one fails, a transaction that was begun is taken back.
 */
export interface DiskOperations {
  /** Again after a failure, too: what was there is closed first. `leaveOut`: types of which nothing may be there. `discard`: set the file aside, for this reason. */
  open: { takes: [leaveOut: readonly TypeUrl[], discard?: string | undefined]; gives: Opened };
  /** The next part of what was committed last: first rows, then payloads. Undefined: that was all, and all is whole. */
  read: { takes: []; gives: RowBatch | undefined };
  /** `replace`: everything that is there goes. */
  begin: { takes: [replace: boolean]; gives: undefined };
  put: { takes: [part: RowBatch]; gives: undefined };
  /** Gives the digests of the payloads that were deleted, because no row refers to them any more. */
  commit: { takes: [state: string]; gives: readonly string[] };
  close: { takes: []; gives: undefined };
}

export type Operation = keyof DiskOperations;

/** What each operation does, on the thread of the disk. It may throw. */
export type DiskHandlers = {
  readonly [O in Operation]: (...args: DiskOperations[O]['takes']) => DiskOperations[O]['gives'];
};

export type Reply<O extends Operation> = Result<DiskOperations[O]['gives'], DiskError>;

/** The same for the thread that serves. Nothing here throws or rejects. */
export type RemoteOperations = {
  readonly [O in Operation]: (...args: DiskOperations[O]['takes']) => Promise<Reply<O>>;
};

/** What crosses to the thread of the disk. The reply is a `Reply`. */
export type DiskRequest<O extends Operation = Operation> = {
  [P in O]: { readonly operation: P; readonly args: DiskOperations[P]['takes'] };
}[O];
