import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from 'node:v8';

/** From this on, V8 counts so by itself and has no flag for it. */
const changed = [14, 8] as const;
/** Of the heap, in bytes. Below that, what connections hold could pass the limit that it counts towards (ADR 183). */
const leastHeap = 2 * 1024 ** 3;

/** Of one half of what V8 has for young objects, in bytes. */
const mostForYoung = 16 * 1024 ** 2;

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
  boundYoungObjects();
}

/**
 * A fleet that connects survives, so V8 lets young objects take up to 64 MB, and takes them back only when it has nothing to
 * do. With half of that an update costs less (ADR 194).
 */
function boundYoungObjects(): void {
  let isFull = false;
  const look = (): void => {
    const young = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
    const size = young === undefined ? 0 : young.space_used_size + young.space_available_size;
    // It would double.
    if (2 * size > mostForYoung === isFull) return;
    isFull = !isFull;
    // V8 takes a maximum only at its start.
    setFlagsFromString(`--semi-space-growth-factor=${isFull ? 1 : 2}`);
  };
  look();
  new PerformanceObserver(look).observe({ entryTypes: ['gc'] });
}
