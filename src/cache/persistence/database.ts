import { DatabaseSync, type SQLOutputValue, type StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { TypeUrl } from '../../model/brand.ts';
import { getOrMake } from '../../model/maps.ts';
import { contentDigest } from '../../model/payloads.ts';
import { DiskProblem, type Row, type RowBatch, type RowKind } from './records.ts';

/** How much goes from thread to thread at once. */
const partRows = 1000;
const partBytes = 4 * 1024 * 1024;

const rowKinds: readonly RowKind[] = ['resource', 'interest', 'version', 'change'];

/** Number of rows, and the sum of their checksums: they show a row that is missing or from another commit. */
const none = { entries: 0, sum: 0 };
type Total = typeof none;

/** The database, used by the one thread that may wait for a disk. Every method may throw; `diskError` says what. */
export class Database {
  /** What was committed last beside the rows; undefined: nothing was. */
  readonly state: string | undefined;
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #total: Total = none;
  /** What the open transaction has done. `released`: payloads that a row does not refer to any more; another one may. */
  #transaction: { readonly total: Total; readonly released: Set<string> } | undefined;
  #reading: Iterator<RowBatch> | undefined;

  /** `leaveOut`: types of which nothing may be there. */
  constructor(file: string, leaveOut: readonly TypeUrl[]) {
    this.#database = new DatabaseSync(file, { timeout: 0 });
    try {
      if (prepareDatabase(this.#database)) return;
      const meta = this.#statement('SELECT state, entries, sum FROM meta').get();
      this.state = textOf(meta, 'state');
      this.#total = { entries: numberOf(meta, 'entries'), sum: numberOf(meta, 'sum') };
      this.#purge(leaveOut, this.state);
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /** The next part, all of it checked: rows first, as they take longer to decode, then payloads. */
  read(): RowBatch | undefined {
    this.#reading ??= this.#parts();
    const next = this.#reading.next();
    if (next.done !== true) return next.value;
    this.#reading = undefined;
    return undefined;
  }

  /** What was begun and is not committed is taken back. */
  begin(replace: boolean): void {
    this.rollback();
    this.#database.exec('BEGIN IMMEDIATE');
    this.#transaction = { total: { ...(replace ? none : this.#total) }, released: new Set() };
    if (replace) this.#database.exec('DELETE FROM entry_payload; DELETE FROM entry; DELETE FROM payload');
  }

  put({ rows, payloads }: RowBatch): void {
    const insert = this.#statement('INSERT OR IGNORE INTO payload (digest, bytes) VALUES (?, ?)');
    for (const { digest, bytes } of payloads) insert.run(digest, bytes);
    for (const row of rows) this.#put(row);
  }

  /** Returns the digests of the payloads that were deleted, because no row refers to them any more. */
  commit(state: string): readonly string[] {
    const { total, released } = this.#open;
    const remove = this.#statement(
      'DELETE FROM payload WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM entry_payload WHERE payload = digest)',
    );
    const dropped = [...released].filter((digest) => remove.run(digest).changes > 0);
    const { entries, sum } = total;
    const meta = 'INSERT OR REPLACE INTO meta (id, state, entries, sum) VALUES (1, ?, ?, ?)';
    this.#statement(meta).run(state, entries, sum);
    this.#database.exec('COMMIT');
    this.#total = total;
    this.#transaction = undefined;
    return dropped;
  }

  /** Takes back what was begun, if anything was. */
  rollback(): void {
    this.#transaction = undefined;
    // SQLite takes back by itself after some errors.
    if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
  }

  close(): void {
    this.#database.close();
  }

  get #open() {
    if (this.#transaction === undefined) throw new Error('there is no transaction');
    return this.#transaction;
  }

  #put({ kind, type, key, body, payloads }: Row): void {
    const { total, released } = this.#open;
    const before = this.#statement(
      'SELECT id, checksum FROM entry WHERE kind = ? AND type = ? AND key = ?',
    ).get(kind, type, key);
    if (before !== undefined) {
      const id = numberOf(before, 'id');
      const referred = this.#statement('DELETE FROM entry_payload WHERE entry = ? RETURNING payload').all(id);
      for (const columns of referred) released.add(textOf(columns, 'payload'));
      if (body === undefined) this.#statement('DELETE FROM entry WHERE id = ?').run(id);
      count(total, numberOf(before, 'checksum'), -1);
    }
    if (body === undefined) return;
    const checksum = checksumOf([kind, type, key, body]);
    const written = this.#statement(
      `INSERT INTO entry (kind, type, key, body, checksum) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET body = excluded.body, checksum = excluded.checksum RETURNING id`,
    ).get(kind, type, key, body, checksum);
    const refer = this.#statement('INSERT INTO entry_payload (entry, payload) VALUES (?, ?)');
    for (const digest of payloads) refer.run(numberOf(written, 'id'), digest);
    count(total, checksum, 1);
  }

  *#parts(): Iterator<RowBatch> {
    const total = { ...none };
    let rows: Row[] = [];
    for (const columns of this.#statement('SELECT * FROM entry').iterate()) {
      rows.push(readRow(columns));
      count(total, numberOf(columns, 'checksum'), 1);
      if (rows.length < partRows) continue;
      yield { rows, payloads: [] };
      rows = [];
    }
    if (total.entries !== this.#total.entries || total.sum !== this.#total.sum) {
      throw corrupt('rows are missing or from another time');
    }
    if (this.#statement('PRAGMA foreign_key_check').get() !== undefined)
      throw corrupt('a payload is missing');
    let payloads: RowBatch['payloads'][number][] = [];
    let size = 0;
    for (const columns of this.#statement('SELECT digest, bytes FROM payload').iterate()) {
      const digest = textOf(columns, 'digest');
      const bytes = bytesOf(columns, 'bytes');
      if (contentDigest(bytes) !== digest) throw corrupt('a content does not fit its checksum');
      payloads.push({ digest, bytes });
      size += bytes.length;
      if (payloads.length < partRows && size < partBytes) continue;
      yield { rows, payloads };
      rows = [];
      payloads = [];
      size = 0;
    }
    yield { rows, payloads };
  }

  /**
   * Removes what was persisted of types before: not a byte stays, neither in free pages nor in the log. If that is broken
   * off when the rows have gone, bytes stay in free pages (docs/adr/0143-what-is-kept-on-disk.md).
   */
  #purge(types: readonly TypeUrl[], state: string): void {
    const rows = types.flatMap((type) =>
      this.#statement('SELECT * FROM entry WHERE type = ?').all(type).map(readRow),
    );
    if (rows.length === 0) return;
    this.begin(false);
    for (const row of rows) this.#put({ ...row, body: undefined });
    this.commit(state);
    this.#database.exec('VACUUM; PRAGMA wal_checkpoint(TRUNCATE)');
  }

  #statement(sql: string): StatementSync {
    return getOrMake(this.#statements, sql, () => this.#database.prepare(sql));
  }
}

function readRow(columns: Columns): Row {
  const kind = textOf(columns, 'kind');
  const [type, key, body] = [textOf(columns, 'type'), textOf(columns, 'key'), textOf(columns, 'body')];
  const known = rowKinds.find((one) => one === kind);
  if (known === undefined) throw corrupt(`there is no kind of row ${kind}`);
  if (checksumOf([known, type, key, body]) !== numberOf(columns, 'checksum')) {
    throw corrupt(`the row of ${JSON.stringify(key)} does not fit its checksum`);
  }
  return { kind: known, type, key, body, payloads: [] };
}

function checksumOf(values: readonly string[]): number {
  return crc32(values.join('\n'));
}

/** `by` -1: it was deleted. */
function count(total: Total, checksum: number, by: 1 | -1): void {
  total.entries += by;
  total.sum = (total.sum + by * checksum) >>> 0;
}

/** "dist", so that a file of another program is not taken for ours. */
const applicationId = 0x64697374;
/** Grows with every change of the tables or of what is in them. There are no migrations: a cache is filled again. */
const schemaVersion = 2;

/** A payload is named by the digest of its bytes; `entry_payload` says which rows refer to it. */
const tables = `
  CREATE TABLE entry (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, type TEXT NOT NULL, key TEXT NOT NULL,
    body TEXT NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (kind, type, key)
  );
  CREATE TABLE payload (digest TEXT PRIMARY KEY, bytes BLOB NOT NULL);
  CREATE TABLE entry_payload (
    entry INTEGER NOT NULL REFERENCES entry,
    payload TEXT NOT NULL REFERENCES payload,
    PRIMARY KEY (entry, payload)
  ) WITHOUT ROWID;
  CREATE INDEX payload_entry ON entry_payload (payload);
  CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL, entries INTEGER NOT NULL, sum INTEGER NOT NULL
  );
  PRAGMA application_id = ${applicationId};
  PRAGMA user_version = ${schemaVersion};`;

/**
 * Takes the database for this process and makes its tables; true if it was empty. The lock is the operating system's:
 * it ends with the process, however that ends.
 */
function prepareDatabase(database: DatabaseSync): boolean {
  database.exec('PRAGMA locking_mode = EXCLUSIVE');
  const pragma = (name: string): number => numberOf(database.prepare(`PRAGMA ${name}`).get(), name);
  const found = numberOf(database.prepare('SELECT count(*) AS found FROM sqlite_schema').get(), 'found');
  // Before anything that would change a file of others.
  if (found > 0 && pragma('application_id') !== applicationId) {
    throw corrupt('it is a database of another program');
  }
  const version = pragma('user_version');
  if (found > 0 && version !== schemaVersion) {
    throw corrupt(`its schema is version ${version}, this one reads ${schemaVersion}`);
  }
  database.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA journal_size_limit = 67108864;
    BEGIN EXCLUSIVE;`);
  if (found === 0) database.exec(tables);
  database.exec('COMMIT');
  return found === 0 || database.prepare('SELECT 1 FROM meta').get() === undefined;
}

type Columns = Record<string, SQLOutputValue>;

/** A column that must be there and of its type: what else it is shows that the file is not what was written. */
function textOf(columns: Columns | undefined, column: string): string {
  const value = columns?.[column];
  if (typeof value !== 'string') throw corrupt(`column ${column} is no text`);
  return value;
}

function numberOf(columns: Columns | undefined, column: string): number {
  const value = columns?.[column];
  if (typeof value !== 'number') throw corrupt(`column ${column} is no number`);
  return value;
}

function bytesOf(columns: Columns | undefined, column: string): Uint8Array {
  const value = columns?.[column];
  if (!(value instanceof Uint8Array)) throw corrupt(`column ${column} is no blob`);
  return value;
}

/** The database cannot be what was written. */
const corrupt = (message: string): DiskProblem => new DiskProblem('corrupt', message);
