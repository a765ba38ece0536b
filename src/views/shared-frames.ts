import type { Encoding, Response } from '../model/subscription.ts';
import type { Composed, CursorStep, Frame } from './frame.ts';

interface SharedResponse {
  readonly step: CursorStep;
  readonly composed: Composed;
}

/**
 * The encoded responses that lead to a view's head, one for each step. Few steps are in use at a time, and most clients
 * need the newest, so a list is quicker than keys.
 */
export class SharedFrames {
  #known: SharedResponse[] = [];
  readonly #whole = new Map<Encoding, Frame>();

  /** A response for this step, with a nonce above `lastSerial`: a stream's nonces grow. */
  find(step: CursorStep, lastSerial: number): Composed | undefined {
    for (let index = this.#known.length - 1; index >= 0; index--) {
      const known = this.#known[index];
      if (known === undefined || !sameStep(known.step, step)) continue;
      const { frame } = known.composed;
      return frame === undefined || frame.serial > lastSerial ? known.composed : undefined;
    }
    return undefined;
  }

  /** The last one is kept, and of those before what has room. */
  add(step: CursorStep, composed: Composed): void {
    const known = this.#known.filter((each) => !sameStep(each.step, step));
    known.push({ step, composed });
    let bytes = known.reduce((total, each) => total + bytesOf(each), 0);
    // Streams that stall at many different revisions must not make this long, or large.
    while (known.length > maxShared || (known.length > 1 && bytes > maxSharedBytes))
      bytes -= bytesOf(known.shift());
    this.#known = known;
  }

  /** Others may get the same bytes. */
  holds(response: Response): boolean {
    return (
      this.#known.some(({ composed }) => composed.frame === response) ||
      this.#whole.values().some((frame) => frame === response)
    );
  }

  /** The complete state. It is the same for every cursor (protocol §3.7). */
  whole(encoding: Encoding, lastSerial: number): Frame | undefined {
    const frame = this.#whole.get(encoding);
    return frame !== undefined && frame.serial > lastSerial ? frame : undefined;
  }

  addWhole(encoding: Encoding, frame: Frame): void {
    this.#whole.set(encoding, frame);
  }

  /** The head has moved on. */
  clear(): void {
    this.#known = [];
    this.#whole.clear();
  }
}

const maxShared = 64;
const maxSharedBytes = 16 << 20;

const bytesOf = (known: SharedResponse | undefined): number => known?.composed.frame?.bytes.length ?? 0;

function sameStep(a: CursorStep, b: CursorStep): boolean {
  return (
    a.from === b.from &&
    a.resend === b.resend &&
    a.encoding === b.encoding &&
    a.deferred === b.deferred &&
    a.deferredBefore === b.deferredBefore &&
    a.firstResponseDue === b.firstResponseDue
  );
}
