import { hash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { type Disk, WorkerDisk } from '../../../src/cache/persistence/disk.ts';
import type { DiskServer } from '../../../src/cache/persistence/disk-server.ts';
import {
  type Loaded,
  Persistence,
  type PersistenceOptions,
  type UpstreamIdentity,
} from '../../../src/cache/persistence/persistence.ts';
import type { RowBatch } from '../../../src/cache/persistence/records.ts';
import type { ChangeSource } from '../../../src/cache/persistence/rows.ts';
import { Store } from '../../../src/cache/store.ts';
import { resourceName, type TypeUrl } from '../../../src/model/brand.ts';
import { type Clock, systemClock } from '../../../src/model/clock.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import { isCollection } from '../../../src/model/selection.ts';
import {
  type Holder,
  type Interest,
  type Put,
  type Transaction,
  transaction,
} from '../../../src/model/transaction.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { createLog } from '../../../src/observe/log.ts';
import { eventually } from '../../e2e/support/eventually.ts';
import { put, type } from '../../support/in-memory-relay.ts';

export const central: UpstreamIdentity = { name: 'central', text: 'central', places: ['cp:1'] };
export const wild: Holder = { key: 'central wildcard', upstream: 'central', role: 'wildcard' };
export const named: Holder = { key: 'central named', upstream: 'central', role: 'named' };

export function interest(
  short: string,
  selector = '*',
  parameters: Readonly<Record<string, string>> = {},
): Interest {
  return {
    type: type(short),
    selector: resourceName(selector),
    parameters: internParameters(Object.entries(parameters)),
  };
}

export function says(
  short: string,
  part: Partial<Transaction> & {
    readonly resources?: Readonly<Record<string, string>>;
    readonly more?: Partial<Put>;
  },
): Transaction {
  const { resources = {}, more = {}, ...rest } = part;
  const puts = Object.entries(resources).map(([name, content]) => put(type(short), name, content, more));
  return transaction({ holder: wild, type: type(short), version: '1', puts, ...rest });
}

const logLine = z.looseObject({ level: z.string(), message: z.string() });

export interface CacheOptions extends Partial<PersistenceOptions> {
  readonly directory: string;
  readonly history?: ChangeSource;
}

/** A store with what keeps it: as much of the relay as persistence sees. */
export class Cache {
  readonly store: Store;
  readonly persistence: Persistence;
  readonly lines: { readonly level: string; readonly message: string; readonly [key: string]: unknown }[] =
    [];
  readonly failures: string[] = [];
  readonly disk: Disk;
  loaded: Loaded | undefined;

  private constructor({ directory, clock = systemClock, ...options }: CacheOptions) {
    this.disk = options.disk ?? new WorkerDisk(directory);
    this.persistence = new Persistence({
      disk: this.disk,
      path: directory,
      leaveOut: [type('sds')],
      upstreams: () => [central],
      serves: () => 'central',
      sessions: () => ({}),
      staleSince: () => undefined,
      clock,
      log: createLog({ write: (line) => this.lines.push(logLine.parse(JSON.parse(line))) }),
      failed: (kind) => this.failures.push(kind),
      ...options,
    });
    this.store = new Store({
      clock,
      ambiguous: () => {},
      expiring: () => {},
      journal: this.persistence.journal,
    });
  }

  static async open(options: CacheOptions): Promise<Cache> {
    const cache = new Cache(options);
    cache.loaded = await cache.persistence.load();
    if (cache.loaded !== undefined) cache.store.restore(cache.loaded.restored);
    cache.persistence.attach(cache.store, options.history);
    return cache;
  }

  /** Waits until everything is on disk. */
  async written(): Promise<void> {
    const start = Date.now();
    await eventually(() => {
      expect(this.persistence.lastWrite ?? 0).to.be.at.least(start);
      expect(this.persistence.lagSeconds).to.equal(0);
    });
  }

  /** Whole, on a busy machine too: the next process finds the file unlocked. */
  close(): Promise<void> {
    return this.persistence.close(60_000);
  }

  messages(level?: string): string[] {
    return this.lines
      .filter((line) => level === undefined || line.level === level)
      .map(({ message }) => message);
  }
}

/** Everything in a store that lasts, as text: equal stores, equal texts. */
export function dump(store: Store): string {
  const lines: string[] = [];
  for (const [url, table] of store.tables) {
    const { short } = typeInfo(url);
    for (const [name, cell] of table.resources) {
      for (const { variant, holders } of cell.variants.values()) {
        const { revision: _r, type: _t, payload, constraints, metadata, ...rest } = variant;
        const bytes = payload === undefined ? 'none' : Buffer.from(payload.bytes).toString('hex');
        const who = holders.map(({ key, upstream, role }) => `${key}/${upstream}/${role}`).toSorted();
        const what = {
          ...rest,
          constraints: constraints.key,
          bytes,
          who,
          metadata: metadata === undefined ? '' : Buffer.from(metadata).toString('hex'),
        };
        const sorted = Object.entries(what).toSorted(([a], [b]) => (a < b ? -1 : 1));
        lines.push(`${short} resource ${name} ${JSON.stringify(sorted)}`);
      }
      for (const [parameters, variant] of cell.bindings ?? [])
        lines.push(`${short} binding ${name} ${parameters.key} ${variant}`);
    }
    const before = lines.length;
    for (const { interest: one, answer, holder } of table.interests.all()) {
      const { selector, parameters } = one;
      // Names under which nothing is there are not kept.
      if (!isCollection(selector) && !table.hasContent(one)) continue;
      lines.push(`${short} interest ${selector} ${parameters.key} ${answer !== undefined} ${holder?.key}`);
    }
    if (lines.length === before && table.resources.size === 0) continue;
    for (const [holder, version] of table.versions) lines.push(`${short} version ${holder} ${version}`);
  }
  return lines.toSorted().join('\n');
}

/** What is only restored: nobody has confirmed it. */
export function unconfirmed(store: Store, url: TypeUrl): string[] {
  const names: string[] = [];
  for (const [of, table] of store.tables) {
    for (const { variant, holders } of of === url ? table.restored : []) {
      if (holders.some(({ restored }) => restored)) names.push(variant.name);
    }
  }
  return names.toSorted();
}

/** All that a server that is open has on disk. */
export function partsOf(server: DiskServer): RowBatch[] {
  const parts: RowBatch[] = [];
  for (;;) {
    const part = server.answer({ operation: 'read', args: [] });
    if (!part.ok) throw new Error(part.error.message);
    if (part.value === undefined) return parts;
    parts.push(part.value);
  }
}

export function temporary(): { readonly path: string; readonly remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'persistence-'));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Whether these bytes are anywhere below. */
export function onDisk(directory: string, bytes: string): boolean {
  if (!existsSync(directory)) return false;
  return readdirSync(directory).some((file) => readFileSync(join(directory, file)).includes(bytes));
}

export const clockAt = (now: () => number): Clock => ({ ...systemClock, now });

/** Of everything that lasts. */
export function digestOf(store: Store): string {
  return hash('sha256', dump(store), 'hex');
}
