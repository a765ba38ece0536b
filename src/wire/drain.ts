import type { Clock } from '../model/clock.ts';
import { shuffled } from '../model/random.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';

/** Why a stream is ended or not taken while the process ends. */
export const DRAINING: GrpcStatus = {
  code: Code.UNAVAILABLE,
  message: 'draining: connect to another replica',
};

/** Of the time that streams have to end, this part. The rest is for the last trailers to arrive. */
export const drainShare = 0.9;

/** The rest is at least so long, in milliseconds: what is cut earlier has no status, and a client takes that for a fault. */
export const leastForTrailersMs = 200;

/** Milliseconds between two batches. */
const step = 50;

/**
 * Ends streams in random order, evenly spread over `milliseconds`, so that a fleet does not reconnect to the other
 * replicas in one instant. Streams that closed by themselves meanwhile are skipped by `end` doing nothing.
 */
export function spread<T>(
  items: Iterable<T>,
  milliseconds: number,
  clock: Clock,
  random: () => number,
  end: (item: T) => void,
): { cancel(): void } {
  const waiting = shuffled(items, random);
  const total = waiting.length;
  const started = clock.monotonic();
  let timer = clock.after(0, tick);

  function tick(): void {
    const elapsed = clock.monotonic() - started;
    const due = elapsed >= milliseconds ? total : Math.ceil((total * elapsed) / milliseconds);
    while (total - waiting.length < due) {
      const item = waiting.pop();
      if (item === undefined) return;
      end(item);
    }
    if (waiting.length > 0) timer = clock.after(Math.min(step, milliseconds), tick);
  }

  return { cancel: () => timer.cancel() };
}
