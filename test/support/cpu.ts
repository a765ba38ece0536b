/** Seconds of CPU that this process has used, for bounds that others on the machine cannot break. */
export function cpuSeconds(): number {
  return process.cpuUsage().user / 1e6;
}
