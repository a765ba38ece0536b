/**
 * What this relay answers, taken as what it says it is: the page and the relay that serves it are of one version, and the
 * page shows all of it as text.
 */
export function trusted<T>(value: unknown): T {
  return value as T;
}
