import type { Clock, Timer } from '../../model/clock.ts';
import type { FileRecord } from './record.ts';
import { type Scan, scanFiles } from './scan.ts';
import { DirectoryWatches } from './watch.ts';

/** What came of looking at the files. */
export type Look =
  | { readonly kind: 'scanned'; readonly scan: Scan }
  | { readonly kind: 'missing'; readonly reason: string };

/** Milliseconds. A change is looked at once it has been quiet for so long, or when `patience` is over. */
const quiet = 50;
const patience = 500;
/** For file systems that do not tell of changes. */
const pollPresent = 30_000;
const pollMissing = 1_000;
/** A scan during which something changed is done again, so that half of a change is not published; so often. */
const rounds = 3;

/** Looks at the files whenever something below the path changes, one look at a time. */
export class FileSource {
  #files: ReadonlyMap<string, FileRecord> = new Map();
  readonly #path: string;
  readonly #maxConstraintDepth: number;
  readonly #clock: Clock;
  readonly #found: (look: Look) => void;
  readonly #watches = new DirectoryWatches(() => this.#touch());
  #timer: Timer | undefined;
  #touchedAt: number | undefined;
  #looking: Promise<void> | undefined;
  #stopped = false;

  constructor(path: string, maxConstraintDepth: number, clock: Clock, found: (look: Look) => void) {
    this.#path = path;
    this.#maxConstraintDepth = maxConstraintDepth;
    this.#clock = clock;
    this.#found = found;
  }

  start(): void {
    this.#look();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#looking;
    this.#watches.close();
  }

  #touch(): void {
    if (this.#stopped) return;
    const now = this.#clock.now();
    this.#touchedAt ??= now;
    if (this.#looking === undefined)
      this.#lookAfter(Math.min(quiet, Math.max(0, this.#touchedAt + patience - now)));
  }

  #lookAfter(milliseconds: number): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.after(milliseconds, () => this.#look());
  }

  #look(): void {
    if (this.#looking === undefined && !this.#stopped) this.#looking = this.#lookOnce();
  }

  async #lookOnce(): Promise<void> {
    const present = await this.#lookUntilQuiet();
    this.#looking = undefined;
    if (this.#stopped) return;
    if (this.#touchedAt !== undefined) this.#lookAfter(quiet);
    else this.#lookAfter(present ? pollPresent : pollMissing);
  }

  /** Whether the path is there. */
  async #lookUntilQuiet(): Promise<boolean> {
    for (let round = 1; ; round++) {
      this.#touchedAt = undefined;
      const directories = new Set<string>();
      const scan = await scanFiles(this.#path, this.#files, {
        maxConstraintDepth: this.#maxConstraintDepth,
        now: () => this.#clock.now(),
        visit: (directory) => {
          directories.add(directory);
          if (!this.#stopped) this.#watches.add(directory);
        },
      });
      if (this.#stopped) return false;
      this.#watches.keepOnly(directories);
      if (scan.ok) this.#files = scan.value.files;
      if (this.#touchedAt !== undefined && round < rounds) continue;
      this.#found(scan.ok ? { kind: 'scanned', scan: scan.value } : { kind: 'missing', reason: scan.error });
      return scan.ok;
    }
  }
}
