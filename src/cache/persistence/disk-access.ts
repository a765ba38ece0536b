import type { TypeUrl } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import { Conditions } from '../../observe/conditions.ts';
import type { Log } from '../../observe/log.ts';
import type { Disk } from './disk.ts';
import type { DiskError } from './records.ts';

export interface DiskAccessOptions {
  readonly disk: Disk;
  /** For messages. */
  readonly path: string;
  /** Types that are not written; what is there of them is removed. */
  readonly leaveOut: readonly TypeUrl[];
  readonly log: Log;
  /** Each time something could not be done. */
  readonly failed: (kind: DiskError['kind'] | 'slow') => void;
}

/** The disk and its errors: logged once per change, counted each time; the file is opened anew where that may help. */
export class DiskAccess {
  readonly disk: Disk;
  readonly #options: DiskAccessOptions;
  readonly #conditions: Conditions;
  /** It must be opened before use. `discard`: why its file is to be set aside then. */
  #closed: { readonly discard: string | undefined } | undefined = { discard: undefined };
  #failures = 0;

  constructor(options: DiskAccessOptions) {
    this.disk = options.disk;
    this.#options = options;
    this.#conditions = new Conditions(options.log);
  }

  /** How often in a row something failed. */
  get failures(): number {
    return this.#failures;
  }

  /** With the state that was committed last, if any was. Undefined: it was open. */
  async open(): Promise<Result<{ readonly state: string | undefined } | undefined, DiskError>> {
    if (this.#closed === undefined) return ok(undefined);
    const { leaveOut, log, path, failed } = this.#options;
    const opened = await this.disk.open(leaveOut, this.#closed.discard);
    if (!opened.ok) return opened;
    this.#closed = undefined;
    const { state, setAside } = opened.value;
    if (setAside !== undefined) {
      const { file, reason } = setAside;
      log.error('the persisted cache is unusable and set aside; a new one is begun', { path, file, reason });
      failed('corrupt');
    }
    return ok({ state });
  }

  /** What was read is not what was written: the next `open` sets the file aside. */
  markDamaged(reason: string): void {
    this.#closed = { discard: reason };
  }

  reportFailure(error: DiskError): void {
    const { failed, path } = this.#options;
    this.#failures++;
    failed(error.kind);
    // A full disk may get room again; after any other error the file is opened anew.
    if (error.kind !== 'full')
      this.#closed = { discard: error.kind === 'corrupt' ? error.message : undefined };
    const fields = { path, kind: error.kind, reason: error.message };
    this.#conditions.set(
      'disk',
      error.kind,
      'error',
      'the cache cannot be persisted; serving goes on',
      fields,
    );
  }

  reportSuccess(): void {
    const { path } = this.#options;
    if (this.#failures > 0)
      this.#conditions.set('disk', 'well', 'info', 'the cache is persisted again', { path });
    this.#failures = 0;
  }

  reportSlow(): void {
    const { failed, path } = this.#options;
    failed('slow');
    this.#conditions.set(
      'speed',
      'slow',
      'warn',
      'the disk of the persisted cache is slow; serving goes on',
      { path },
    );
  }

  reportInTime(): void {
    this.#conditions.forget('speed');
  }
}
