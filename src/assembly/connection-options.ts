import type { ListenerOptions } from '../wire/listener.ts';
import type { Core } from './core.ts';

const lostAuthorities =
  'authorities were removed from ca: connections with certificates of these were closed';

/**
 * What holds for the connections of a listener of clients, whatever is spoken on them: by the core's configuration.
 * `listener`: its section there, for the log.
 */
export function connectionOptions(core: Core, listener: 'xds' | 'rest') {
  return {
    bounds: core.admission.forListener(),
    accounts: core.accounts,
    maxConnectionAge: () => core.config.xds.maxConnectionAgeMs,
    reviewTime: () => core.config.drainTimeoutMs,
    reviewed: (connections: number) => {
      if (connections > 0) core.log.info(lostAuthorities, { listener, connections });
    },
    report: (message: string, error: unknown, peer?: string) =>
      core.conditions.set(`${listener} listener`, `${message}: ${String(error)}`, 'warn', message, {
        ...(peer === undefined ? {} : { peer }),
        error,
      }),
  } satisfies Omit<ListenerOptions, 'address'>;
}
