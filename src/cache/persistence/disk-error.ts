import { errorCode, explainError } from '../../wire/node-error.ts';
import type { DiskError } from './records.ts';

/** Trouble that is found here, not by SQLite or the file system. */
export class DiskProblem extends Error {
  readonly kind: DiskError['kind'];

  constructor(kind: DiskError['kind'], message: string) {
    super(message);
    this.kind = kind;
  }
}

/** The database cannot be what was written. */
export const corrupt = (message: string): DiskProblem => new DiskProblem('corrupt', message);

/**
 * https://www.sqlite.org/rescode.html, the low byte. The statements are fixed and fit the tables and their constraints.
 * So an error in a statement (1), a broken constraint (19) or a value of another type (20) comes from a damaged file.
 */
const kinds: ReadonlyMap<number, DiskError['kind']> = new Map([
  [1, 'corrupt'],
  [5, 'locked'],
  [6, 'locked'],
  [8, 'read_only'],
  [11, 'corrupt'],
  [13, 'full'],
  [19, 'corrupt'],
  [20, 'corrupt'],
  [26, 'corrupt'],
]);

const codes: ReadonlyMap<string, DiskError['kind']> = new Map([
  ['EROFS', 'read_only'],
  ['EACCES', 'read_only'],
  ['EPERM', 'read_only'],
  ['ENOSPC', 'full'],
  ['EDQUOT', 'full'],
  // node:sqlite: a number is larger than any that was written.
  ['ERR_OUT_OF_RANGE', 'corrupt'],
]);

/** Everything that is thrown on the way to the disk, translated here. */
export function diskError(thrown: unknown): DiskError {
  if (thrown instanceof DiskProblem) return { kind: thrown.kind, message: thrown.message };
  if (thrown instanceof Error && 'errcode' in thrown && typeof thrown.errcode === 'number') {
    const kind = kinds.get(thrown.errcode & 0xff) ?? 'io';
    if (kind === 'locked')
      return { kind, message: 'another process has it open: each needs a directory of its own' };
    return { kind, message: thrown.message };
  }
  return { kind: codes.get(errorCode(thrown) ?? '') ?? 'io', message: explainError(thrown) };
}
