/** As package.json's `engines` says. Here, because an older Node may not be able to read another module of the relay. */
const needed = '24.12';

/** What to tell somebody whose Node is too old; undefined: it will do. `version` is as in process.versions.node. */
export function outdatedNode(version: string, path: string): string | undefined {
  if (!isBefore(version, needed)) return undefined;
  return `distributary needs Node.js ${needed} or newer; ${path} is ${version}`;
}

/** When this was written down: releases since are not known here. */
const knownOn = '2026-11-23';
/**
 * By major line, the first release without the faults of high severity that nodejs.org has announced. To be looked through
 * at each release of the relay, as are the packages that bring Node.
 */
const secure: ReadonlyMap<number, string> = new Map([[26, '26.13.1']]);

/** What to tell an operator whose Node has known faults; undefined: none was known. `version` as in process.versions.node. */
export function faultyNode(version: string): string | undefined {
  const needs = secure.get(Number(version.split('.')[0]));
  if (needs === undefined || !isBefore(version, needs)) return undefined;
  return `Node.js ${version} has vulnerabilities of high severity that ${needs} fixes (as of ${knownOn}): run the relay on a newer version, as SECURITY.md says`;
}

function isBefore(version: string, other: string): boolean {
  const [a, b] = [version, other].map((text) => text.split('.').map(Number));
  const at = b?.findIndex((part, index) => part !== a?.[index]) ?? -1;
  return at >= 0 && (a?.[at] ?? 0) < (b?.[at] ?? 0);
}
