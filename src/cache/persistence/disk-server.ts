import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { TypeUrl } from '../../model/brand.ts';
import { attempt, type Result } from '../../model/result.ts';
import { makeDirectory, setAside as moveAside } from '../../package/files.ts';
import { Database } from './database.ts';
import { type DiskError, DiskProblem, diskError, type RowBatch } from './records.ts';

export type Operation = 'open' | 'read' | 'begin' | 'put' | 'commit' | 'close';
/** What an operation takes. */
export type Asked<O extends Operation> = Parameters<DiskServer[O]>;
export type Reply<O extends Operation> = Result<ReturnType<DiskServer[O]>, DiskError>;

/** What crosses to the thread of the disk. What comes back is a `Reply`. */
export type DiskRequest<O extends Operation = Operation> = {
  [P in O]: { readonly operation: P; readonly args: Asked<P> };
}[O];

/**
 * Does what it is asked, on the thread that may wait for a disk. In this order: open; read until there is no more, or not
 * at all; any number of (begin, put…, commit); close. One at a time, and each may throw. Where one fails, or another one
 * begins, a transaction that was begun is taken back.
 */
export class DiskServer {
  readonly #directory: string;
  #database: Database | undefined;
  /** Of the copy, if one was opened. */
  #removeCopy: (() => void) | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  answer<O extends Operation>(request: DiskRequest<O>): Reply<O> {
    const reply = attempt(() => carryOut(this, request), diskError);
    // What was thrown first says more than what the rollback throws.
    if (!reply.ok) attempt(() => this.#database?.rollback(), diskError);
    return reply;
  }

  get #opened(): Database {
    if (this.#database === undefined) throw new Error('it is not open');
    return this.#database;
  }

  /**
   * Again after a failure, too: what was there is closed first. `leaveOut`: types of which nothing may be there.
   * `discard`: set the file aside, for this reason. `mayCopy`: it is only to be read, so a copy will do where it cannot be
   * written. Gives what was committed last beside the rows, if anything was, and why it is a copy. `setAside`: a file of
   * another program or a damaged one, which was renamed.
   */
  open(leaveOut: readonly TypeUrl[], discard?: string, mayCopy = false) {
    this.close();
    const known = isEmpty(this.#directory) ? undefined : discard;
    let unwritable: DiskError | undefined;
    let setAside: { readonly file: string; readonly reason: string } | undefined;
    try {
      unwritable = this.#openFile(leaveOut, mayCopy);
      if (known !== undefined) throw new DiskProblem('corrupt', known);
    } catch (thrown) {
      const { kind, message } = diskError(thrown);
      const reason = known ?? (kind === 'corrupt' ? message : undefined);
      // A process that has the file open would go on to write into it.
      if (reason === undefined || kind === 'locked') throw thrown;
      this.close();
      // So that an operator can look into it.
      setAside = { file: moveAside(databaseFile(this.#directory), companions), reason };
      unwritable = this.#openFile(leaveOut, mayCopy);
    }
    return { state: this.#opened.state, setAside, unwritable };
  }

  /** The next part of what was committed last: first rows, then payloads. Undefined: that was all, and all is whole. */
  read(): RowBatch | undefined {
    const part = this.#opened.read();
    if (part === undefined) this.#removeCopy?.();
    return part;
  }

  /** `replace`: everything that is there goes. */
  begin(replace: boolean): void {
    this.#opened.begin(replace);
  }

  put(part: RowBatch): void {
    this.#opened.put(part);
  }

  /** Gives the digests of the payloads that were deleted, because no row refers to them any more. */
  commit(state: string): readonly string[] {
    return this.#opened.commit(state);
  }

  close(): void {
    try {
      this.#database?.close();
    } finally {
      this.#database = undefined;
      this.#removeCopy?.();
      this.#removeCopy = undefined;
    }
  }

  /** Gives why it is a copy that was opened; undefined: it is the file. */
  #openFile(leaveOut: readonly TypeUrl[], mayCopy: boolean): DiskError | undefined {
    try {
      prepareFile(this.#directory);
      this.#database = new Database(databaseFile(this.#directory), leaveOut);
      return undefined;
    } catch (thrown) {
      const error = diskError(thrown);
      // The relay may have restarted during an outage, or another one takes its place.
      if (!mayCopy || (error.kind !== 'read_only' && error.kind !== 'locked')) throw thrown;
      const message = error.kind === 'locked' ? error.message : 'the directory cannot be written to';
      const why = { kind: error.kind, message };
      this.#openCopy(leaveOut, why);
      return why;
    }
  }

  /** Of a file that another process writes it may be of two moments: then it is made again. */
  #openCopy(leaveOut: readonly TypeUrl[], why: DiskError): void {
    for (let copies = 1; ; copies++) {
      try {
        const { file, remove } = copyOfFile(this.#directory);
        this.#removeCopy = remove;
        this.#database = new Database(file, leaveOut);
        while (why.kind === 'locked' && this.#database.read() !== undefined);
        return;
      } catch (thrown) {
        this.close();
        const { kind, message } = diskError(thrown);
        if (why.kind !== 'locked' && kind === 'corrupt') throw thrown;
        // That the copy is damaged says nothing of the file.
        const mayBeTorn = why.kind === 'locked' && kind !== 'full' && kind !== 'read_only';
        if (mayBeTorn && copies < mostCopies) continue;
        const text = `${why.message}; a copy in ${tmpdir()} (TMPDIR) cannot be made or read: ${message}`;
        throw new DiskProblem(why.kind, text);
      }
    }
  }
}

const mostCopies = 5;

function carryOut<O extends Operation>(
  server: { [P in Operation]: (...args: Asked<P>) => ReturnType<DiskServer[P]> },
  { operation, args }: DiskRequest<O>,
): ReturnType<DiskServer[O]> {
  return server[operation](...args);
}

/** SQLite's own, beside the database. */
const companions = ['-wal', '-shm', '-journal'];

const databaseFile = (directory: string): string => join(directory, 'cache.sqlite');

/** Makes the directory and an empty file, where there are none. Nobody else may read them: they may hold secrets. */
export function prepareFile(directory: string): void {
  makeDirectory(resolve(directory));
  closeSync(openSync(databaseFile(directory), 'a', 0o600));
}

function isEmpty(directory: string): boolean {
  const file = databaseFile(directory);
  return !existsSync(file) || statSync(file).size === 0;
}

/** A copy that can be opened where the directory itself cannot be written to; to be deleted after use. */
function copyOfFile(directory: string): { readonly file: string; readonly remove: () => void } {
  const copy = mkdtempSync(join(tmpdir(), 'distributary-'));
  const remove = (): void => rmSync(copy, { recursive: true, force: true });
  try {
    for (const companion of ['', '-wal']) {
      const file = databaseFile(directory) + companion;
      if (!existsSync(file)) continue;
      copyFileSync(file, databaseFile(copy) + companion);
      chmodSync(databaseFile(copy) + companion, 0o600);
    }
  } catch (error) {
    remove();
    throw error;
  }
  return { file: databaseFile(copy), remove };
}
