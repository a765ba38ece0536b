import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import type { Interest } from '../../model/transaction.ts';
import type { Journal } from '../journal.ts';

/** More names than this are not listed: then everything is written. What was deleted has no other bound. */
const maxListed = 200_000;

/** What of one type is not on disk as it is in the store. */
export interface DirtyType {
  readonly resources: Set<ResourceName>;
  /** By `interestKey`. */
  readonly interests: Map<string, Interest>;
  readonly versions: Set<string>;
}

export function interestKey({ selector, parameters }: Interest): string {
  return JSON.stringify([selector, parameters.key]);
}

/**
 * Names of what has changed since it was written. However often something changes, it is here once; what it is now is
 * read from the store when the disk is ready for it.
 */
export class Dirty implements Journal {
  /** Since when something waits, by the clock; undefined: nothing does. */
  since: number | undefined;
  /** Everything, listed or not; what is on disk is replaced. */
  everything = false;
  types = new Map<TypeUrl, DirtyType>();
  /** By revision: the types of recorded changes. */
  changes = new Map<number, TypeUrl>();
  readonly #now: () => number;
  readonly #excluded: ReadonlySet<TypeUrl>;
  readonly #changed: () => void;
  #size = 0;

  constructor(now: () => number, excluded: ReadonlySet<TypeUrl>, changed: () => void) {
    this.#now = now;
    this.#excluded = excluded;
    this.#changed = changed;
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
    if (this.#excluded.has(type)) return;
    if (!this.everything) this.changes.set(revision, type);
    this.#notice();
  }

  all(): void {
    this.everything = true;
    this.types.clear();
    this.changes.clear();
    this.#size = 0;
    this.#notice();
  }

  /** Takes what has gathered; what comes from now on gathers anew. */
  take(): TakenChanges {
    const { since, everything, types, changes } = this;
    this.since = undefined;
    this.everything = false;
    this.types = new Map();
    this.changes = new Map();
    this.#size = 0;
    return { since, everything, types, changes };
  }

  /** It could not be written: it waits still. */
  putBack({ since, everything, types, changes }: TakenChanges): void {
    if (everything) this.all();
    for (const [revision, type] of changes) this.change(type, revision);
    for (const [type, { resources, interests, versions }] of types) {
      for (const name of resources) this.resource(type, name);
      for (const interest of interests.values()) this.interest(interest);
      for (const holder of versions) this.version(type, holder);
    }
    this.since = since ?? this.since;
  }

  #mark(type: TypeUrl, mark: (dirty: DirtyType) => void): void {
    if (this.#excluded.has(type)) return;
    if (!this.everything) {
      const known = this.types.get(type) ?? {
        resources: new Set(),
        interests: new Map(),
        versions: new Set(),
      };
      this.types.set(type, known);
      mark(known);
      if (++this.#size > maxListed) this.all();
    }
    this.#notice();
  }

  #notice(): void {
    this.since ??= this.#now();
    this.#changed();
  }
}

export interface TakenChanges {
  readonly since: number | undefined;
  readonly everything: boolean;
  readonly types: ReadonlyMap<TypeUrl, DirtyType>;
  readonly changes: ReadonlyMap<number, TypeUrl>;
}
