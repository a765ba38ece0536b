import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { resourceName, typeUrl } from '../../../src/model/brand.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { NO_PARAMETERS } from '../../../src/model/parameters.ts';
import type { Interest, Removal, Transaction } from '../../../src/model/transaction.ts';
import { CLAIMS_EVERYTHING, type Claims } from '../../../src/upstream/claims.ts';
import {
  type FilesystemOptions,
  FilesystemUpstream,
} from '../../../src/upstream/filesystem/filesystem-upstream.ts';

export const cds = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
export const eds = typeUrl('type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment');

export function interest(type: typeof cds, selector: string): Interest {
  return { type, selector: resourceName(selector), parameters: NO_PARAMETERS };
}

/** A file of clusters with these names. */
export function clusters(...names: readonly string[]): string {
  return `resources: [${names.map((name) => `{ "@type": ${cds}, name: ${name} }`).join(', ')}]\n`;
}

/** A cluster in a variant for this env. */
export function variant(name: string, env: string): string {
  const constraints = `{ constraint: { key: env, value: ${env} } }`;
  return `
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    resource_name: { name: ${name}, dynamic_parameter_constraints: ${constraints} }
    resource: { "@type": ${cds}, name: ${name}, alt_stat_name: ${env} }`;
}

const shown = ({ name, constraints }: Removal): string =>
  constraints.key === '' ? name : `${name}@${constraints.key}`;

/** A filesystem upstream over a temporary directory, and what it has told so far. */
export class Harness {
  readonly root: string;
  readonly path: string;
  readonly transactions: Transaction[] = [];
  readonly warnings: string[] = [];
  readonly notes: string[] = [];
  /** Both, in order. */
  readonly lines: string[] = [];
  /** The types of what was refused. */
  readonly rejected: string[] = [];
  /** Types of which the cache has something that is restored. */
  restored: readonly (typeof cds)[] = [];
  changes = 0;
  /** Those after which it waits for a change. */
  scans = 0;
  readonly upstream: FilesystemUpstream;
  readonly #waiting = new Set<() => void>();

  private constructor(root: string, path: string, claims: Claims, options: Partial<FilesystemOptions> = {}) {
    this.root = root;
    this.path = path;
    const log = {
      warn: (message: string) => {
        this.warnings.push(message);
        this.lines.push(message);
      },
      info: (message: string) => {
        this.notes.push(message);
        this.lines.push(message);
      },
    };
    const sink = {
      apply: (transaction: Transaction) => {
        this.transactions.push(transaction);
        this.#wake();
      },
      restamp: () => {},
      restoredOf: () => this.restored,
      changed: () => {
        this.changes++;
        this.#wake();
      },
    };
    this.upstream = new FilesystemUpstream(
      {
        name: 'files',
        path,
        claims,
        maxConstraintDepth: 64,
        ...options,
        clock: {
          ...systemClock,
          after: (milliseconds, run) => {
            if (milliseconds >= 1000) this.scans++;
            this.#wake();
            return systemClock.after(milliseconds, run);
          },
        },
        log,
        metrics: { rejected: (type) => void this.rejected.push(type) },
      },
      sink,
    );
  }

  static async make(
    files: Readonly<Record<string, string | Uint8Array>>,
    claims = CLAIMS_EVERYTHING,
    options: Partial<FilesystemOptions> = {},
  ) {
    const root = await mkdtemp(join(tmpdir(), 'distributary-files-'));
    const harness = new Harness(root, join(root, 'resources'), claims, options);
    for (const [file, content] of Object.entries(files)) await harness.write(file, content);
    return harness;
  }

  /** An upstream over another path to the same files. */
  by(path: string): Harness {
    return new Harness(this.root, join(this.root, path), CLAIMS_EVERYTHING);
  }

  /** Another upstream over the same files, which may take the place of one. */
  another(before?: FilesystemUpstream): Harness {
    return new Harness(this.root, this.path, CLAIMS_EVERYTHING, { before });
  }

  async write(file: string, content: string | Uint8Array): Promise<void> {
    await mkdir(dirname(join(this.path, file)), { recursive: true });
    await writeFile(join(this.path, file), content);
  }

  /** As careful programs write: a file beside it, then a move. */
  async replace(file: string, content: string): Promise<void> {
    await writeFile(join(this.root, 'next'), content);
    await rename(join(this.root, 'next'), join(this.path, file));
  }

  /** Starts, and waits for the first scan. */
  async start(): Promise<this> {
    this.upstream.start();
    await this.until(() => this.upstream.state().connected);
    return this;
  }

  async close(): Promise<void> {
    await this.upstream.stop();
    await rm(this.root, { recursive: true, force: true });
  }

  /** What a cache would hold now of a type: `name` or `name@constraints`, sorted. */
  names(type: typeof cds): readonly string[] {
    const held = new Set<string>();
    for (const transaction of this.transactions) {
      if (transaction.type !== type) continue;
      if (transaction.complete) held.clear();
      for (const one of transaction.removals) held.delete(shown(one));
      for (const one of transaction.puts) held.add(shown(one));
    }
    return [...held].toSorted();
  }

  async until(condition: () => boolean): Promise<void> {
    const end = Date.now() + 8_000;
    while (!condition()) {
      if (Date.now() > end)
        throw new Error(`not so: ${String(condition)}; state ${JSON.stringify(this.upstream.state())}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 500);
        this.#waiting.add(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}
