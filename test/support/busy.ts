import { availableParallelism, loadavg } from 'node:os';

/** Whether the machine does much else: with more than two programs for each processor, each runs at half its speed at most even while it runs. */
export function isBusy(): boolean {
  const [load = 0] = loadavg();
  return load > 2 * availableParallelism();
}
