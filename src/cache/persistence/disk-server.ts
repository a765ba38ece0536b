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
import { fail, ok, type Result } from '../../model/result.ts';
import { makeDirectory, setAside } from '../../package/files.ts';
import { Database } from './database.ts';
import { DiskProblem, diskError } from './disk-error.ts';
import type { DiskError, RowBatch, SetAside } from './records.ts';

interface Opened {
  /** What was committed last beside the rows; undefined: nothing was. */
  readonly state: string | undefined;
  readonly setAside: SetAside | undefined;
  /** It can only be read. */
  readonly unwritable?: DiskError | undefined;
}

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
 * at all; any number of (begin, put…, commit); close. One at a time, and each may throw. Where one fails, a transaction
 * that was begun is taken back.
 */
export class DiskServer {
  readonly #directory: string;
  #database: Database | undefined;
  /** The file cannot be written, for this reason: what was opened is a copy of it. */
  #copy: { readonly remove: () => void; readonly why: DiskError } | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  answer<O extends Operation>(request: DiskRequest<O>): Reply<O> {
    try {
      return ok(carryOut(this, request));
    } catch (thrown) {
      const error = diskError(thrown);
      try {
        this.#database?.rollback();
      } catch {
        // what was thrown first says more
      }
      return fail(error);
    }
  }

  get #opened(): Database {
    if (this.#database === undefined) throw new Error('it is not open');
    return this.#database;
  }

  /**
   * Again after a failure, too: what was there is closed first. `leaveOut`: types of which nothing may be there.
   * `discard`: set the file aside, for this reason. `mayCopy`: it is only to be read, so a copy will do where it cannot be
   * written. Gives what was committed last beside the rows, if anything was, and why nothing can be written.
   */
  open(leaveOut: readonly TypeUrl[], discard?: string, mayCopy = false): Opened {
    this.close();
    let setAside: SetAside | undefined;
    if (discard !== undefined) setAside = setFileAside(this.#directory, discard);
    try {
      this.#database = this.#openFile(leaveOut, mayCopy);
    } catch (thrown) {
      const { kind, message } = diskError(thrown);
      if (kind !== 'corrupt') throw thrown;
      setAside = setFileAside(this.#directory, message);
      this.#database = this.#openFile(leaveOut, mayCopy);
    }
    return { state: this.#database.state, setAside, unwritable: this.#copy?.why };
  }

  /** The next part of what was committed last: first rows, then payloads. Undefined: that was all, and all is whole. */
  read(): RowBatch | undefined {
    const part = this.#opened.read();
    if (part === undefined) this.#copy?.remove();
    return part;
  }

  /** `replace`: everything that is there goes. */
  begin(replace: boolean): void {
    if (this.#copy !== undefined) throw new DiskProblem(this.#copy.why.kind, this.#copy.why.message);
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
      this.#copy?.remove();
      this.#copy = undefined;
    }
  }

  #openFile(leaveOut: readonly TypeUrl[], mayCopy: boolean): Database {
    try {
      prepareFile(this.#directory);
      return new Database(databaseFile(this.#directory), leaveOut);
    } catch (thrown) {
      const error = diskError(thrown);
      if (!mayCopy) throw thrown;
      // The relay may have restarted during an outage, or another one takes its place.
      if (error.kind === 'read_only')
        return this.#openCopy(leaveOut, { ...error, message: 'the directory cannot be written to' });
      if (error.kind === 'locked') return this.#openCopy(leaveOut, error);
      throw thrown;
    }
  }

  /** Of a file that another process writes it may be of two moments: then it is made again. */
  #openCopy(leaveOut: readonly TypeUrl[], why: DiskError): Database {
    for (let copies = 1; ; copies++) {
      const { file, remove } = copyOfFile(this.#directory);
      let database: Database | undefined;
      try {
        database = new Database(file, leaveOut);
        while (why.kind === 'locked' && database.read() !== undefined);
        this.#copy = { remove, why };
        return database;
      } catch (error) {
        database?.close();
        remove();
        if (why.kind !== 'locked') throw error;
        // That the copy is damaged says nothing of the file.
        if (copies === mostCopies) throw new DiskProblem('locked', why.message);
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

/** Renames the database files, so that an operator can look into them. Undefined: the database is empty. */
function setFileAside(directory: string, reason: string): SetAside | undefined {
  const file = databaseFile(directory);
  if (!existsSync(file) || statSync(file).size === 0) return undefined;
  return { file: setAside(file, companions), reason };
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
