import { getHeapStatistics, setFlagsFromString } from 'node:v8';

/** From this on, V8 counts so by itself and has no flag for it. */
const changed = [14, 8] as const;
/** Of the heap, in bytes. Below that, what connections hold could pass the limit that it counts towards (ADR 183). */
const leastHeap = 2 * 1024 ** 3;

/**
 * V8 collects the whole heap each time that 40 to 64 MB of memory outside of it were allocated, though they be in use. A
 * TLS connection has 165 KB of it, so that is once or twice for each 400 clients of a fleet that connects. From now on V8
 * does so when that memory has doubled.
 *
 * Not before the scripts of dist/ are read: V8 takes their code only with the flags that it was made with (ADR 184).
 */
export function collectAsHeldMemoryGrows(): void {
  const [major = 0, minor = 0] = process.versions.v8.split('.').map(Number);
  const isBefore = major < changed[0] || (major === changed[0] && minor < changed[1]);
  if (!isBefore || getHeapStatistics().heap_size_limit < leastHeap) return;
  setFlagsFromString('--external-memory-accounted-in-global-limit');
  // Node 24's V8 does not have this one and grows by as much as the heap.
  if (major === 14 && minor === 6) setFlagsFromString('--external-memory-max-growing-factor=2');
}
