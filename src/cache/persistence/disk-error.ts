import { errorCode, explainError } from '../../wire/node-error.ts';
import type { DiskError } from './records.ts';

/** Trouble that is found by the relay, not by SQLite or the file system. */
export class DiskProblem extends Error {
  readonly kind: DiskError['kind'];

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
