import { type FSWatcher, watch } from 'node:fs';
import { basename, isAbsolute, join, parse, resolve, sep } from 'node:path';

type Closable = Pick<FSWatcher, 'close'>;

/**
 * Calls `changed` when an entry of a directory is made, moved or written; with true when the watch is useless from now
 * on. Throws if the directory cannot be watched.
 */
export type WatchDirectory = (directory: string, changed: (over?: boolean) => void) => Closable;

/**
 * Watches directories, each by itself: a recursive watch does not follow links, and a ConfigMap is made of them. Files
 * are not watched, because they are replaced by renaming.
 */
export class DirectoryWatches {
  readonly #watches = new Map<string, Closable>();
  readonly #changed: () => void;
  readonly #watch: WatchDirectory;

  constructor(changed: () => void, watchDirectory: WatchDirectory = watchWithFs) {
    this.#changed = changed;
    this.#watch = watchDirectory;
  }

  /** False: it is not there, or it cannot be watched (limits of the kernel, network file systems). */
  add(directory: string): boolean {
    if (this.#watches.has(directory)) return true;
    try {
      const watcher = this.#watch(directory, (over) => {
        if (over === true) this.#drop(directory);
        this.#changed();
      });
      this.#watches.set(directory, watcher);
      return true;
    } catch {
      return false;
    }
  }

  keepOnly(directories: ReadonlySet<string>): void {
    for (const directory of this.#watches.keys()) {
      if (!directories.has(directory)) this.#drop(directory);
    }
  }

  close(): void {
    this.keepOnly(new Set());
  }

  #drop(directory: string): void {
    this.#watches.get(directory)?.close();
    this.#watches.delete(directory);
  }
}

/** As the kernel's bound. */
const mostLinks = 40;

/**
 * The way to a path, link by link: asks of each step what it points at, and goes on there. Undefined: it is no symbolic
 * link. Returns where the way ends.
 */
export function* linksOnTheWay(path: string): Generator<string, string, string | undefined> {
  let links = 0;
  function* walk(whole: string): Generator<string, string, string | undefined> {
    let real = parse(whole).root;
    for (const step of whole.slice(real.length).split(sep)) {
      const here = join(real, step);
      const target = yield here;
      if (target === undefined || links++ >= mostLinks) real = here;
      else real = yield* walk(isAbsolute(target) ? target : resolve(real, target));
    }
    return real;
  }
  return yield* walk(resolve(path));
}

const watchWithFs: WatchDirectory = (directory, changed) =>
  watch(directory, { persistent: false }, (event, file) => {
    // Moved or deleted itself: the watch stays with the old inode, and another directory may take the path.
    changed(event === 'rename' && file === basename(directory));
  }).on('error', () => changed(true));
