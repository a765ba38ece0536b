import type { Config } from '../config/config.ts';

/** The keys of the configuration that only a restart can change. */
export function needsRestart(before: Config, after: Config): string[] {
  const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
  const keys: string[] = [];
  if (!same(before.node, after.node)) keys.push('node');
  if (!same([before.xds.address, before.xds.tls], [after.xds.address, after.xds.tls])) keys.push('xds');
  if (!same(before.admin, after.admin)) keys.push('admin');
  if (before.workers !== after.workers) keys.push('workers');
  if (before.limits.maxRequestBytes !== after.limits.maxRequestBytes) keys.push('limits.max_request_bytes');
  if (before.cache.idleTtlMs !== after.cache.idleTtlMs) keys.push('cache.idle_ttl');
  if (!same(before.cache.persistence, after.cache.persistence)) keys.push('cache.persistence');
  return keys;
}
