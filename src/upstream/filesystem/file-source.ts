import type { Clock, Timer } from '../../model/clock.ts';
import { DirectoryWatches } from '../../wire/directory-watches.ts';
import type { FileRecord } from './record.ts';
import { type Scan, scanFiles } from './scan.ts';

/** What came of looking at the files. */
export type ScanOutcome =
  | { readonly kind: 'scanned'; readonly scan: Scan }
  | { readonly kind: 'missing'; readonly reason: string };

/** Milliseconds. A change is looked at once it has been quiet for so long, or when `longestDelayMs` is over. */
const quietMs = 50;
const longestDelayMs = 500;
/** For file systems that do not tell of changes. */
const pollPresentMs = 30_000;
const pollMissingMs = 1_000;
/** A scan during which something changed is done again, so that half of a change is not published; so often. */
const maxRounds = 3;

/** Looks at the files whenever something below the path changes, one look at a time. */
export class FileSource {
  #files: ReadonlyMap<string, FileRecord> = new Map();
  readonly #path: string;
  readonly #maxConstraintDepth: number;
  readonly #clock: Clock;
  readonly #found: (look: ScanOutcome) => void;
  readonly #watches = new DirectoryWatches(() => this.#changed());
  #timer: Timer | undefined;
  #touchedAt: number | undefined;
  #scanning: Promise<void> | undefined;
  #stopped = false;

  constructor(path: string, maxConstraintDepth: number, clock: Clock, found: (look: ScanOutcome) => void) {
    this.#path = path;
    this.#maxConstraintDepth = maxConstraintDepth;
    this.#clock = clock;
    this.#found = found;
  }

  start(): void {
    this.#scan();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#scanning;
    this.#watches.close();
  }

  #changed(): void {
    if (this.#stopped) return;
    const now = this.#clock.now();
    this.#touchedAt ??= now;
    if (this.#scanning === undefined)
      this.#scanAfter(Math.min(quietMs, Math.max(0, this.#touchedAt + longestDelayMs - now)));
  }

  #scanAfter(milliseconds: number): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.after(milliseconds, () => this.#scan());
  }

  #scan(): void {
    if (this.#scanning === undefined && !this.#stopped) this.#scanning = this.#scanOnce();
  }

  async #scanOnce(): Promise<void> {
    const present = await this.#scanUntilQuiet();
    this.#scanning = undefined;
    if (this.#stopped) return;
    if (this.#touchedAt !== undefined) this.#scanAfter(quietMs);
    else this.#scanAfter(present ? pollPresentMs : pollMissingMs);
  }

  /** Whether the path is there. */
  async #scanUntilQuiet(): Promise<boolean> {
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
      if (this.#touchedAt !== undefined && round < maxRounds) continue;
      this.#found(scan.ok ? { kind: 'scanned', scan: scan.value } : { kind: 'missing', reason: scan.error });
      return scan.ok;
    }
  }
}
