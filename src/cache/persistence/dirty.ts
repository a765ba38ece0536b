import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import { getOrMake } from '../../model/maps.ts';
import type { Interest } from '../../model/transaction.ts';
import type { Journal } from '../type-table.ts';

/** More names than this are not listed: then everything is written. What was deleted has no other bound. */
const maxListed = 200_000;

/** What of one type is not on disk as it is in the store. */
class DirtyType {
  readonly resources = new Set<ResourceName>();
  /** By `interestKey`. */
  readonly interests = new Map<string, Interest>();
  readonly versions = new Set<string>();
  /** By revision. */
  readonly changes = new Set<number>();

  get size(): number {
    return this.resources.size + this.interests.size + this.versions.size + this.changes.size;
  }
}

/** What is not on disk. */
export class Dirt {
  /** Everything, listed or not; what is on disk is replaced. */
  everything = false;
  /** When the first of it came, by `Clock.monotonic()`; undefined: nothing has. */
  since: number | undefined;
  readonly types = new Map<TypeUrl, DirtyType>();
}

export function interestKey({ selector, parameters }: Interest): string {
  return JSON.stringify([selector, parameters.key]);
}

/**
 * Names of what has changed since it was written. However often something changes, it is here once; what it is now is
 * read from the store when the disk is ready for it.
 */
export class Dirty implements Journal {
  #dirt = new Dirt();
  readonly #now: () => number;
  readonly #excluded: ReadonlySet<TypeUrl>;
  readonly #changed: () => void;
  #size = 0;

  constructor(now: () => number, excluded: ReadonlySet<TypeUrl>, changed: () => void) {
    this.#now = now;
    this.#excluded = excluded;
    this.#changed = changed;
  }

  get since(): number | undefined {
    return this.#dirt.since;
  }

  /** Something waits: by now, or since then. */
  waits(since = this.#now()): void {
    this.#dirt.since ??= since;
    this.#changed();
  }

  resource(type: TypeUrl, name: ResourceName): void {
    this.#mark(type, ({ resources }) => resources.add(name));
  }

  interest(interest: Interest): void {
    this.#mark(interest.type, ({ interests }) => interests.set(interestKey(interest), interest));
  }

  version(type: TypeUrl, holder: string): void {
    this.#mark(type, ({ versions }) => versions.add(holder));
  }

  change(type: TypeUrl, revision: number): void {
    this.#mark(type, ({ changes }) => changes.add(revision));
  }

  all(): void {
    this.#dirt.everything = true;
    this.#dirt.types.clear();
    this.#size = 0;
    this.waits();
  }

  /** Takes what has gathered; what comes from now on gathers anew. */
  take(): Dirt {
    const taken = this.#dirt;
    this.#dirt = new Dirt();
    this.#size = 0;
    return taken;
  }

  /** It could not be written: it waits still. */
  putBack({ since, everything, types }: Dirt): void {
    this.#dirt.since = since ?? this.since;
    if (everything) this.all();
    for (const [type, { resources, interests, versions, changes }] of types) {
      for (const name of resources) this.resource(type, name);
      for (const interest of interests.values()) this.interest(interest);
      for (const holder of versions) this.version(type, holder);
      for (const revision of changes) this.change(type, revision);
    }
  }

  #mark(type: TypeUrl, mark: (dirty: DirtyType) => void): void {
    if (this.#excluded.has(type)) return;
    const { everything, types } = this.#dirt;
    if (!everything) {
      const dirty = getOrMake(types, type, () => new DirtyType());
      this.#size -= dirty.size;
      mark(dirty);
      this.#size += dirty.size;
      if (this.#size > maxListed) this.all();
    }
    this.waits();
  }
}
