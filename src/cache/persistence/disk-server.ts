import { Database } from './database.ts';
import { DiskProblem, diskError } from './disk-error.ts';
import { copyOfFile, databaseFile, prepareFile, setFileAside } from './files.ts';
import type { DiskReply, DiskRequest, Opened, SetAside } from './records.ts';

/** Does what it is asked, on the thread that may wait for a disk. */
export class DiskServer {
  readonly #directory: string;
  readonly #reply: (reply: DiskReply) => void;
  #database: Database | undefined;
  /** The file cannot be written: what was opened is a copy of it. */
  #removeCopy: (() => void) | undefined;

  constructor(directory: string, reply: (reply: DiskReply) => void) {
    this.#directory = directory;
    this.#reply = reply;
  }

  take(request: DiskRequest): void {
    try {
      this.#reply(this.#answer(request));
    } catch (thrown) {
      const error = diskError(thrown);
      try {
        this.#database?.rollback();
      } catch {
        // what was thrown first says more
      }
      this.#reply({ kind: 'failed', error });
    }
  }

  #answer(request: DiskRequest): DiskReply {
    switch (request.kind) {
      case 'open':
        return { kind: 'opened', opened: this.#open(request.secrets, request.discard) };
      case 'load':
        this.#opened.load((part) => this.#reply({ kind: 'part', part }));
        return { kind: 'done' };
      case 'begin':
        if (this.#removeCopy !== undefined)
          throw new DiskProblem('read_only', 'the directory cannot be written to');
        this.#opened.begin(request.replace);
        return { kind: 'done' };
      case 'put':
        this.#opened.put(request.part);
        return { kind: 'done' };
      case 'commit':
        return { kind: 'committed', dropped: this.#opened.commit(request.state) };
      case 'close':
        this.#close();
        return { kind: 'done' };
      default:
        return request satisfies never;
    }
  }

  get #opened(): Database {
    if (this.#database === undefined) throw new Error('it is not open');
    return this.#database;
  }

  #open(secrets: boolean, discard: string | undefined): Opened {
    this.#close();
    let setAside: SetAside | undefined;
    if (discard !== undefined) setAside = setFileAside(this.#directory, discard);
    try {
      this.#database = this.#openFile(secrets);
    } catch (thrown) {
      const { kind, message } = diskError(thrown);
      if (kind !== 'corrupt') throw thrown;
      setAside = setFileAside(this.#directory, message);
      this.#database = this.#openFile(secrets);
    }
    return { state: this.#database.state, setAside };
  }

  #openFile(secrets: boolean): Database {
    try {
      prepareFile(this.#directory);
    } catch (thrown) {
      // The directory is read-only, but the cache can still be read from a copy: the relay may have restarted during
      // an outage.
      if (diskError(thrown).kind === 'read_only') return this.#openCopy(secrets);
      throw thrown;
    }
    return new Database(databaseFile(this.#directory), secrets);
  }

  #openCopy(secrets: boolean): Database {
    const { file, remove } = copyOfFile(this.#directory);
    try {
      const database = new Database(file, secrets);
      this.#removeCopy = remove;
      return database;
    } catch (error) {
      remove();
      throw error;
    }
  }

  #close(): void {
    try {
      this.#database?.close();
    } finally {
      this.#database = undefined;
      this.#removeCopy?.();
      this.#removeCopy = undefined;
    }
  }
}
