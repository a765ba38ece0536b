import { lookup as lookUp } from 'node:dns/promises';

/** The addresses of a host name; rejects if there are none. The seam to DNS. */
export type Lookup = (host: string) => Promise<readonly string[]>;

/** As the system resolves names, /etc/hosts included. */
export const systemLookup: Lookup = async (host) =>
  (await lookUp(host, { all: true })).map(({ address }) => address);

/** In random order (Fisher and Yates). `random`: 0 ≤ x < 1. */
export function shuffled<T>(list: readonly T[], random: () => number): readonly T[] {
  const rest = [...list];
  const result: T[] = [];
  while (rest.length > 0) result.push(...rest.splice(Math.floor(random() * rest.length), 1));
  return result;
}
