import { type FSWatcher, watch } from 'node:fs';
import { basename } from 'node:path';

/**
 * Watches directories, each by itself: a recursive watch does not follow links, and a ConfigMap is made of them. What
 * it cannot watch (limits of the kernel, network file systems) is left to the caller's polling.
 */
export class DirectoryWatches {
  readonly #watches = new Map<string, FSWatcher>();
  readonly #changed: () => void;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  add(directory: string): void {
    if (this.#watches.has(directory)) return;
    try {
      const watcher = watch(directory, { persistent: false }, (event, file) => {
        // Moved or deleted itself: the watch stays with the old inode, and another directory may take the path.
        if (event === 'rename' && file === basename(directory)) this.#drop(directory);
        this.#changed();
      });
      watcher.on('error', () => {
        this.#drop(directory);
        this.#changed();
      });
      this.#watches.set(directory, watcher);
    } catch {
      // Gone already, or no watches left: the caller polls.
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
