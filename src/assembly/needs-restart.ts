import type { Config } from '../config/config.ts';

interface Fixed {
  /** In the file. */
  readonly path: readonly string[];
  /** As it is named to the operator. */
  readonly named: string;
  readonly of: (config: Config) => unknown;
}

/** The keys of the configuration that only a restart can change. */
const fixed: readonly Fixed[] = [
  { path: ['node'], named: 'node', of: ({ node }) => node },
  { path: ['xds', 'address'], named: 'xds.address', of: ({ xds }) => xds.address },
  { path: ['xds', 'tls'], named: 'xds.tls', of: ({ xds }) => xds.tls },
  { path: ['rest'], named: 'rest', of: ({ rest }) => rest },
  { path: ['admin', 'address'], named: 'admin.address', of: ({ admin }) => admin.address },
  { path: ['admin', 'tls'], named: 'admin.tls', of: ({ admin }) => admin.tls },
  { path: ['metrics'], named: 'metrics', of: ({ metrics }) => metrics },
  { path: ['tracing'], named: 'tracing', of: ({ tracing }) => tracing },
  { path: ['watchdog'], named: 'watchdog', of: ({ watchdog }) => watchdog },
  { path: ['workers'], named: 'workers', of: ({ workers }) => workers },
  {
    path: ['limits', 'max_request_bytes'],
    named: 'limits.max_request_bytes',
    of: ({ limits }) => limits.maxRequestBytes,
  },
  {
    path: ['limits', 'max_poll_bytes'],
    named: 'limits.max_poll_bytes',
    of: ({ limits }) => limits.maxPollBytes,
  },
  { path: ['cache', 'idle_ttl'], named: 'cache.idle_ttl', of: ({ cache }) => cache.idleTtlMs },
  { path: ['cache', 'persistence'], named: 'cache.persistence', of: ({ cache }) => cache.persistence },
];

/** Those that differ from what the process was started with. */
export function needsRestart(started: Config, now: Config): string[] {
  const text = (value: unknown): string | undefined => JSON.stringify(value);
  const named = fixed.filter(({ of }) => text(of(started)) !== text(of(now))).map((one) => one.named);
  return rolloutInForce(started, now) === now.rollout ? named : [...named, 'rollout'];
}

/** With workers only a restart brings a rollout or ends it: each worker has a feed for each side then (docs/adr/0130). */
export function rolloutInForce(started: Config, now: Config): Config['rollout'] {
  const isFixed = started.workers > 0 && (started.rollout === undefined) !== (now.rollout === undefined);
  return isFixed ? started.rollout : now.rollout;
}

/** The configuration in force for serving clients: the new one, but for what needs a restart. */
export function inForce(started: Config, now: Config): Config {
  return {
    ...now,
    node: started.node,
    rollout: rolloutInForce(started, now),
    xds: { ...now.xds, address: started.xds.address, tls: started.xds.tls },
    rest: started.rest,
    watchdog: started.watchdog,
    limits: {
      ...now.limits,
      maxRequestBytes: started.limits.maxRequestBytes,
      maxPollBytes: started.limits.maxPollBytes,
    },
    cache: { ...now.cache, idleTtlMs: started.cache.idleTtlMs },
  };
}

/** What is in force, as /config_dump shows it: the newest version, with the rest as it was at the start. */
export function dumpInForce(started: Config, now: Config): unknown {
  const paths = fixed.map(({ path }) => path);
  if (rolloutInForce(started, now) !== now.rollout) paths.push(['rollout']);
  return paths.reduce(
    (dump: unknown, path) => withValue(dump, path, valueAt(started.source.dump, path)),
    now.source.dump,
  );
}

function valueAt(value: unknown, path: readonly string[]): unknown {
  return path.reduce((inner: unknown, key) => entriesOf(inner).get(key), value);
}

function withValue(value: unknown, path: readonly string[], replacement: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return replacement;
  const entries = entriesOf(value);
  entries.set(key, withValue(entries.get(key), rest, replacement));
  return Object.fromEntries(entries);
}

function entriesOf(value: unknown): Map<string, unknown> {
  return new Map(typeof value === 'object' && value !== null ? Object.entries(value) : []);
}
