/** What a piece of work takes in milliseconds of CPU on the machine on which the bounds of the tests were set. */
const referenceMs = 6;
/** More is no slow machine. */
const slowest = 4;
let measured: number | undefined;

/**
 * How many times more CPU the same work takes here, from 1 to 4: an older processor, or one whose other half is busy, must
 * not break a bound of CPU time. Measured once in each process.
 */
export function slowness(): number {
  measured ??= slownessNow();
  return measured;
}

/** The same, measured anew: others on the machine come and go. */
export const slownessNow = (): number =>
  Math.min(slowest, Math.max(1, Math.min(...Array.from({ length: 7 }, workMs)) / referenceMs));

/** How many times slower the machine is by now, at least 1: for figures that `slowness` has divided. */
export const slower = (): number => Math.max(1, slownessNow() / slowness());

/** Seconds of CPU that this process has used, as on that machine, for bounds that others on the machine cannot break. */
export function cpuSeconds(): number {
  const factor = slowness();
  return process.cpuUsage().user / 1e6 / factor;
}

function workMs(): number {
  const before = process.cpuUsage();
  const entries = new Map<string, { readonly at: number; readonly text: string }>();
  for (let at = 0; at < 20_000; at++) entries.set(`name-${at % 4000}`, { at, text: String(at) });
  let text = JSON.stringify([...entries.values()]);
  for (let round = 0; round < 3; round++) text = JSON.stringify(JSON.parse(text));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}
