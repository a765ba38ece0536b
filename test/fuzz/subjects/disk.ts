import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { Decoder } from '../../../src/cache/persistence/decode.ts';
import { DiskServer } from '../../../src/cache/persistence/disk-server.ts';
import { Packer } from '../../../src/cache/persistence/packing.ts';
import type { Row, RowBatch } from '../../../src/cache/persistence/records.ts';
import { Store } from '../../../src/cache/store.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { Cache, interest, partsOf, says, temporary } from '../../cache/persistence/support.ts';
import { when } from '../../support/in-memory-relay.ts';
import type { Subject, Trial } from '../subject.ts';

const file = 'cache.sqlite';

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
    server.answer({ operation: 'open', args: [false] });
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
  const { payloads } = parts.find((part) => part.payloads.digests.length > 0) ?? {
    payloads: new Packer().take(),
  };
  return {
    name: 'persisted rows',
    corpus: all.map((one) => Buffer.from(JSON.stringify(one))),
    open: () => ({
      take(bytes) {
        const read = rowOf(bytes);
        if (read === undefined) return;
        const decoder = new Decoder({
          keeps: () => true,
          serves: () => 'central',
          now: 0,
          differs: { resource: () => undefined, interest: () => undefined, version: () => undefined },
        });
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

/** The file of the database itself: it is read, or set aside. */
class FileTrial implements Trial {
  readonly #directory = mkdtempSync(join(tmpdir(), 'distributary-fuzz-'));

  take(bytes: Buffer): void {
    rmSync(this.#directory, { recursive: true, force: true });
    mkdirSync(this.#directory);
    writeFileSync(join(this.#directory, file), bytes);
    const server = new DiskServer(this.#directory);
    server.answer({ operation: 'open', args: [false] });
    try {
      partsOf(server);
    } catch {
      server.answer({ operation: 'open', args: [false, 'damaged'] });
    }
    server.answer({ operation: 'begin', args: [true] });
    const committed = server.answer({ operation: 'commit', args: ['{}'] });
    server.answer({ operation: 'close', args: [] });
    if (!committed.ok) throw new Error(`a new one cannot be begun: ${committed.error.message}`);
  }

  close(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export async function disk(): Promise<readonly Subject[]> {
  const { database, parts } = await written();
  return [
    rows(parts),
    { name: 'the database file', corpus: [database], casesPerTrial: 50, open: () => new FileTrial() },
  ];
}
