import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import { DiskServer } from '../../../src/cache/persistence/disk-server.ts';
import type { DiskError, Row, RowBatch } from '../../../src/cache/persistence/records.ts';
import { Decoder } from '../../../src/cache/persistence/rows.ts';
import { Store } from '../../../src/cache/store.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { Cache, interest, partsOf, says, temporary } from '../../cache/persistence/support.ts';
import { when } from '../../support/in-memory-relay.ts';
import type { Subject, Trial } from '../subject.ts';

const file = 'cache.sqlite';
/** One for the file, one that may set it aside, one for the new file. */
const attempts = 3;

/** What a relay has written: the file, and the rows in it. */
async function written(): Promise<{ readonly database: Buffer; readonly parts: readonly RowBatch[] }> {
  const directory = temporary();
  try {
    const cache = await Cache.open({ directory: directory.path });
    for (const short of ['cds', 'eds']) cache.store.addInterest(interest(short));
    cache.store.addInterest(interest('rds', 'web', { env: 'prod' }));
    cache.store.apply(says('cds', { resources: { a: '1', b: '2' }, resolved: [interest('cds')] }));
    const more = { constraints: when({ env: 'prod' }), aliases: ['x'], doNotCache: false };
    cache.store.apply(says('rds', { resources: { web: '3' }, more }));
    await cache.written();
    await cache.close();
    const server = new DiskServer(directory.path);
    server.answer({ operation: 'open', args: [[]] });
    const parts = partsOf(server);
    server.answer({ operation: 'close', args: [] });
    return { database: readFileSync(join(directory.path, file)), parts };
  } finally {
    directory.remove();
  }
}

const row = z.object({
  kind: z.enum(['resource', 'interest', 'version']),
  type: z.string(),
  key: z.string(),
  body: z.string(),
  payloads: z.array(z.string()),
});

/** Rows that are whole by their checksum and were written by something else. A row is JSON here. */
function rows(parts: readonly RowBatch[]): Subject {
  const all = parts.flatMap((part) => part.rows);
  const payloads = parts.flatMap((part) => part.payloads);
  return {
    name: 'persisted rows',
    corpus: all.map((one) => Buffer.from(JSON.stringify(one))),
    open: () => ({
      take(bytes) {
        const read = rowOf(bytes);
        if (read === undefined) return;
        const differs = { resource: () => {}, interest: () => {}, version: () => {}, change: () => {} };
        const terms = { keeps: () => true, serves: () => 'central', clock: systemClock, differs };
        const decoder = new Decoder(terms);
        decoder.take({ rows: [...all, read], payloads });
        const restored = decoder.finish();
        if (!restored.ok) return;
        new Store({ clock: systemClock, ambiguous: () => undefined, expiring: () => undefined }).restore(
          restored.value,
        );
      },
    }),
  };
}

function rowOf(bytes: Buffer): Row | undefined {
  try {
    return row.parse(JSON.parse(bytes.toString()));
  } catch {
    return undefined;
  }
}

/**
 * The file of the database itself: it is read and written, or set aside. As the relay does, what fails is tried again on
 * a file that is opened anew, and set aside if it is damaged.
 */
class FileTrial implements Trial {
  readonly #directory = mkdtempSync(join(tmpdir(), 'distributary-fuzz-'));
  readonly #parts: readonly RowBatch[];

  constructor(parts: readonly RowBatch[]) {
    this.#parts = parts;
  }

  take(bytes: Buffer): void {
    rmSync(this.#directory, { recursive: true, force: true });
    mkdirSync(this.#directory);
    writeFileSync(join(this.#directory, file), bytes);
    const server = new DiskServer(this.#directory);
    const errors: DiskError[] = [];
    const whole = crc32(bytes) % 2 === 0;
    try {
      for (let attempt = 0; attempt < attempts; attempt++) {
        const last = errors.at(-1);
        const error = this.#attempt(
          server,
          last?.kind === 'corrupt' ? last.message : undefined,
          attempt > 0 || whole,
        );
        if (error === undefined) return;
        errors.push(error);
      }
    } finally {
      server.answer({ operation: 'close', args: [] });
    }
    throw new Error(`it is never written again: ${JSON.stringify(errors)}`);
  }

  /** Undefined: what is there was read and written. `whole`: all of it is replaced, as after very many changes. */
  #attempt(server: DiskServer, discard: string | undefined, whole: boolean): DiskError | undefined {
    const opened = server.answer({ operation: 'open', args: [[], discard] });
    if (!opened.ok) return opened.error;
    return this.#read(server) ?? this.#write(server, whole);
  }

  #read(server: DiskServer): DiskError | undefined {
    for (;;) {
      const part = server.answer({ operation: 'read', args: [] });
      if (!part.ok) return part.error;
      if (part.value === undefined) return undefined;
    }
  }

  #write(server: DiskServer, replace: boolean): DiskError | undefined {
    const begun = server.answer({ operation: 'begin', args: [replace] });
    if (!begun.ok) return begun.error;
    for (const part of this.#parts) {
      const put = server.answer({ operation: 'put', args: [part] });
      if (!put.ok) return put.error;
    }
    const committed = server.answer({ operation: 'commit', args: ['{}'] });
    return committed.ok ? undefined : committed.error;
  }

  close(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export async function disk(): Promise<readonly Subject[]> {
  const { database, parts } = await written();
  return [
    rows(parts),
    { name: 'the database file', corpus: [database], casesPerTrial: 50, open: () => new FileTrial(parts) },
  ];
}
