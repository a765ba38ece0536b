import type { DatabaseSync } from 'node:sqlite';
import { numberOf } from './columns.ts';
import { corrupt } from './disk-error.ts';

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
export function prepareDatabase(database: DatabaseSync): boolean {
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
