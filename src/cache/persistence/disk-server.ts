import type { TypeUrl } from '../../model/brand.ts';
import { fail, ok } from '../../model/result.ts';
import { Database } from './database.ts';
import { DiskProblem, diskError } from './disk-error.ts';
import { copyOfFile, databaseFile, prepareFile, setFileAside } from './files.ts';
import type { DiskHandlers, DiskRequest, Operation, Reply } from './operations.ts';
import type { Opened, SetAside } from './records.ts';

/** Does what it is asked, on the thread that may wait for a disk. */
export class DiskServer {
  readonly #directory: string;
  #database: Database | undefined;
  /** The file cannot be written: what was opened is a copy of it. */
  #removeCopy: (() => void) | undefined;
  readonly #handlers: DiskHandlers = {
    open: (leaveOut, discard) => this.#open(leaveOut, discard),
    read: () => this.#opened.read(),
    begin: (replace) => this.#writable.begin(replace),
    put: (part) => this.#opened.put(part),
    commit: (state) => this.#opened.commit(state),
    close: () => this.#close(),
  };

  constructor(directory: string) {
    this.#directory = directory;
  }

  answer<O extends Operation>({ operation, args }: DiskRequest<O>): Reply<O> {
    try {
      return ok(this.#handlers[operation](...args));
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

  get #writable(): Database {
    if (this.#removeCopy !== undefined)
      throw new DiskProblem('read_only', 'the directory cannot be written to');
    return this.#opened;
  }

  get #opened(): Database {
    if (this.#database === undefined) throw new Error('it is not open');
    return this.#database;
  }

  #open(leaveOut: readonly TypeUrl[], discard: string | undefined): Opened {
    this.#close();
    let setAside: SetAside | undefined;
    if (discard !== undefined) setAside = setFileAside(this.#directory, discard);
    try {
      this.#database = this.#openFile(leaveOut);
    } catch (thrown) {
      const { kind, message } = diskError(thrown);
      if (kind !== 'corrupt') throw thrown;
      setAside = setFileAside(this.#directory, message);
      this.#database = this.#openFile(leaveOut);
    }
    return { state: this.#database.state, setAside };
  }

  #openFile(leaveOut: readonly TypeUrl[]): Database {
    try {
      prepareFile(this.#directory);
    } catch (thrown) {
      // The directory is read-only, but the cache can still be read from a copy: the relay may have restarted during
      // an outage.
      if (diskError(thrown).kind === 'read_only') return this.#openCopy(leaveOut);
      throw thrown;
    }
    return new Database(databaseFile(this.#directory), leaveOut);
  }

  #openCopy(leaveOut: readonly TypeUrl[]): Database {
    const { file, remove } = copyOfFile(this.#directory);
    try {
      const database = new Database(file, leaveOut);
      this.#removeCopy = remove;
      return database;
    } catch (error) {
      remove();
      throw error;
    }
  }

  #close(): undefined {
    try {
      this.#database?.close();
    } finally {
      this.#database = undefined;
      this.#removeCopy?.();
      this.#removeCopy = undefined;
    }
  }
}
