import type { TypeUrl } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import { Conditions } from '../../observe/conditions.ts';
import type { Log } from '../../observe/log.ts';
import type { Disk } from './disk.ts';
import type { DiskError } from './records.ts';

/** The disk and its errors: logged once per change, counted each time; the file is opened anew where that may help. */
export class DiskAccess {
  readonly disk: Disk;
  readonly #path: string;
  readonly #leaveOut: readonly TypeUrl[];
  readonly #log: Log;
  readonly #failed: (kind: DiskError['kind'] | 'slow') => void;
  readonly #conditions: Conditions;
  /** It must be opened before use. `discard`: why its file is to be set aside then. */
  #closed: { readonly discard: string | undefined } | undefined = { discard: undefined };
  #failures = 0;

  /**
   * `path`: for messages. `leaveOut`: types that are not written; what is there of them is removed. `failed`: called each
   * time something could not be done.
   */
  constructor(
    disk: Disk,
    path: string,
    leaveOut: readonly TypeUrl[],
    log: Log,
    failed: (kind: DiskError['kind'] | 'slow') => void,
  ) {
    this.disk = disk;
    this.#path = path;
    this.#leaveOut = leaveOut;
    this.#log = log;
    this.#failed = failed;
    this.#conditions = new Conditions(log);
  }

  /** How often in a row something failed. */
  get failures(): number {
    return this.#failures;
  }

  /** With the state that was committed last, if any was. Undefined: it was open. */
  async open(): Promise<Result<{ readonly state: string | undefined } | undefined, DiskError>> {
    if (this.#closed === undefined) return ok(undefined);
    const opened = await this.disk.open(this.#leaveOut, this.#closed.discard);
    if (!opened.ok) return opened;
    this.#closed = undefined;
    const { state, setAside } = opened.value;
    if (setAside !== undefined) {
      const { file, reason } = setAside;
      this.#log.error('the persisted cache is unusable and set aside; a new one is begun', {
        path: this.#path,
        file,
        reason,
      });
      this.#failed('corrupt');
    }
    return ok({ state });
  }

  /** What was read is not what was written: the next `open` sets the file aside. */
  markDamaged(reason: string): void {
    this.#closed = { discard: reason };
  }

  reportFailure(error: DiskError): void {
    this.#failures++;
    this.#failed(error.kind);
    // A full disk may get room again; after any other error the file is opened anew.
    if (error.kind !== 'full')
      this.#closed = { discard: error.kind === 'corrupt' ? error.message : undefined };
    const fields = { path: this.#path, kind: error.kind, reason: error.message };
    this.#conditions.set(
      'disk',
      error.kind,
      'error',
      'the cache cannot be persisted; serving goes on',
      fields,
    );
  }

  reportSuccess(): void {
    if (this.#failures > 0)
      this.#conditions.set('disk', 'well', 'info', 'the cache is persisted again', { path: this.#path });
    this.#failures = 0;
  }

  reportSlow(): void {
    this.#failed('slow');
    this.#conditions.set(
      'speed',
      'slow',
      'warn',
      'the disk of the persisted cache is slow; serving goes on',
      { path: this.#path },
    );
  }

  reportInTime(): void {
    this.#conditions.forget('speed');
  }
}
