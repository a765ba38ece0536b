import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { contentHash } from '../../model/content-hash.ts';
import { knownTypes } from '../../model/types.ts';
import { bytesOf, type Columns, idsOf, numberOf, textOf } from './columns.ts';
import { corrupt } from './disk-error.ts';
import { Packer, unpack } from './packing.ts';
import type { PackedPayloads, Row, RowBatch, RowKind } from './records.ts';
import { prepareDatabase } from './tables.ts';

/** How much goes from thread to thread at once. */
const partRows = 1000;
const partBytes = 4 * 1024 * 1024;

const secretTypes = knownTypes.filter(({ short }) => short === 'sds').map(({ url }) => url);
const rowKinds: readonly RowKind[] = ['resource', 'interest', 'version'];

/** Number of rows, and the sum of their checksums: a row that is lost or from another time is noticed. */
interface Total {
  entries: number;
  sum: number;
}

/** The database, used by the one thread that may wait for a disk. Every method may throw; see disk-error.ts. */
export class Database {
  /** What was committed last beside the rows; undefined: nothing was. */
  readonly state: string | undefined;
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  /** How many rows refer to each payload. */
  #references = new Map<number, number>();
  #total: Total = { entries: 0, sum: 0 };
  /** What the open transaction makes of `#total` and `#references`. */
  #open:
    | { readonly total: Total; readonly references: Map<number, number>; readonly replace: boolean }
    | undefined;

  constructor(file: string, secrets: boolean) {
    this.#database = new DatabaseSync(file, { timeout: 0 });
    try {
      const empty = prepareDatabase(this.#database);
      this.state = empty ? undefined : textOf(this.#statement('SELECT state FROM meta').get(), 'state');
      if (!secrets && this.state !== undefined) this.#purgeSecrets(this.state);
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /** Hands over everything, all of it checked: rows first, as they take longer to read, then payloads. */
  load(take: (part: RowBatch) => void): void {
    const total: Total = { entries: 0, sum: 0 };
    const references = new Map<number, number>();
    for (const rows of this.#rows(total)) {
      for (const { payloads } of rows) refer(references, payloads, 1);
      take({ rows, payloads: new Packer().take() });
    }
    const meta = this.#statement('SELECT entries, sum FROM meta').get();
    if (total.entries !== numberOf(meta, 'entries') || total.sum !== numberOf(meta, 'sum')) {
      throw corrupt('rows are missing or from another time');
    }
    let payloads = 0;
    for (const packed of this.#payloads()) {
      payloads += packed.ids.filter((id) => references.has(id)).length;
      take({ rows: [], payloads: packed });
    }
    if (payloads !== references.size) throw corrupt('content is lost');
    this.#total = total;
    this.#references = references;
  }

  begin(replace: boolean): void {
    this.#database.exec('BEGIN IMMEDIATE');
    this.#open = {
      total: replace ? { entries: 0, sum: 0 } : { ...this.#total },
      references: new Map(),
      replace,
    };
    if (replace) this.#database.exec('DELETE FROM entry; DELETE FROM payload');
  }

  put({ rows, payloads }: RowBatch): void {
    const insert = this.#statement('INSERT INTO payload (id, hash, bytes) VALUES (?, ?, ?)');
    for (const { id, hash, bytes } of unpack(payloads)) insert.run(id, hash, bytes);
    for (const row of rows) this.#put(row);
  }

  /** Ids of the payloads that are gone, as nothing refers to them any more. */
  commit(state: string): readonly number[] {
    const open = this.#open;
    if (open === undefined) return [];
    const before = open.replace ? new Map<number, number>() : this.#references;
    const counts = [...open.references].map(([id, change]) => [id, (before.get(id) ?? 0) + change] as const);
    const dropped = counts.filter(([, count]) => count <= 0).map(([id]) => id);
    const remove = this.#statement('DELETE FROM payload WHERE id = ?');
    for (const id of dropped) remove.run(id);
    this.#writeMeta(state, open.total);
    this.#database.exec('COMMIT');
    for (const [id, count] of counts) before.set(id, count);
    for (const id of dropped) before.delete(id);
    this.#references = before;
    this.#total = open.total;
    this.#open = undefined;
    return dropped;
  }

  /** Takes back what was begun, if anything was. */
  rollback(): void {
    this.#open = undefined;
    // SQLite takes back by itself after some errors.
    if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
  }

  close(): void {
    this.#database.close();
  }

  #put({ kind, type, key, body, payloads }: Row): void {
    const open = this.#open;
    if (open === undefined) throw new Error('there is no transaction');
    const before = open.replace
      ? undefined
      : this.#statement('SELECT payloads, checksum FROM entry WHERE kind = ? AND type = ? AND key = ?').get(
          kind,
          type,
          key,
        );
    if (before !== undefined) {
      subtract(open.total, numberOf(before, 'checksum'));
      refer(open.references, idsOf(textOf(before, 'payloads')), -1);
    }
    if (body === undefined) {
      if (before === undefined) return;
      this.#statement('DELETE FROM entry WHERE kind = ? AND type = ? AND key = ?').run(kind, type, key);
      return;
    }
    const ids = payloads.join(',');
    const checksum = checksumOf([kind, type, key, body, ids]);
    this.#statement(
      'INSERT OR REPLACE INTO entry (kind, type, key, body, payloads, checksum) VALUES (?, ?, ?, ?, ?, ?)',
    ).run(kind, type, key, body, ids, checksum);
    add(open.total, checksum);
    refer(open.references, payloads, 1);
  }

  *#payloads(): Iterable<PackedPayloads> {
    const packer = new Packer();
    for (const columns of this.#statement('SELECT id, hash, bytes FROM payload').iterate()) {
      const hash = textOf(columns, 'hash');
      const bytes = bytesOf(columns, 'bytes');
      if (contentHash(bytes) !== hash) throw corrupt('a content does not fit its checksum');
      packer.add({ id: numberOf(columns, 'id'), hash, bytes });
      if (packer.size >= partBytes) yield packer.take();
    }
    yield packer.take();
  }

  *#rows(total: Total): Iterable<readonly Row[]> {
    let rows: Row[] = [];
    for (const columns of this.#statement('SELECT * FROM entry').iterate()) {
      rows.push(readRow(columns));
      add(total, numberOf(columns, 'checksum'));
      if (rows.length < partRows) continue;
      yield rows;
      rows = [];
    }
    yield rows;
  }

  /** From a time when secrets were kept: not a byte of them stays, neither in free pages nor in the log. */
  #purgeSecrets(state: string): void {
    const kept = this.#statement('SELECT count(*) AS kept FROM entry WHERE type = ?');
    if (!secretTypes.some((type) => numberOf(kept.get(type), 'kept') > 0)) return;
    this.load(() => {});
    this.begin(false);
    for (const type of secretTypes) {
      for (const columns of this.#statement('SELECT * FROM entry WHERE type = ?').all(type)) {
        this.#put({ ...readRow(columns), body: undefined });
      }
    }
    this.commit(state);
    this.#database.exec('VACUUM; PRAGMA wal_checkpoint(TRUNCATE)');
  }

  #writeMeta(state: string, { entries, sum }: Total): void {
    this.#statement('INSERT OR REPLACE INTO meta (id, state, entries, sum) VALUES (1, ?, ?, ?)').run(
      state,
      entries,
      sum,
    );
  }

  #statement(sql: string): StatementSync {
    const known = this.#statements.get(sql) ?? this.#database.prepare(sql);
    this.#statements.set(sql, known);
    return known;
  }
}

function readRow(columns: Columns): Row {
  const [kind, type, key, body, payloads] = ['kind', 'type', 'key', 'body', 'payloads'].map((column) =>
    textOf(columns, column),
  );
  const known = rowKinds.find((one) => one === kind);
  if (
    known === undefined ||
    type === undefined ||
    key === undefined ||
    body === undefined ||
    payloads === undefined
  ) {
    throw corrupt(`there is no kind of row ${kind}`);
  }
  if (checksumOf([known, type, key, body, payloads]) !== numberOf(columns, 'checksum')) {
    throw corrupt(`the row of ${JSON.stringify(key)} does not fit its checksum`);
  }
  return { kind: known, type, key, body, payloads: idsOf(payloads) };
}

function checksumOf(values: readonly string[]): number {
  return crc32(values.join('\n'));
}

function add(total: Total, checksum: number): void {
  total.entries++;
  total.sum = (total.sum + checksum) >>> 0;
}

function subtract(total: Total, checksum: number): void {
  total.entries--;
  total.sum = (total.sum - checksum) >>> 0;
}

function refer(references: Map<number, number>, ids: readonly number[], by: number): void {
  for (const id of ids) references.set(id, (references.get(id) ?? 0) + by);
}
