import type { Accounts } from '../wire/accounts.ts';
import type { ConnectionBounds } from '../wire/client-connections.ts';
import type { Core } from './core.ts';

/** What holds for the connections of a listener of clients, whatever is spoken on them. */
export interface ConnectionOptions {
  readonly bounds: ConnectionBounds;
  readonly accounts: Accounts;
  readonly maxConnectionAge: () => number | undefined;
  readonly reviewTime: () => number;
  readonly reviewed: (connections: number) => void;
  readonly report: (message: string, error: unknown, peer?: string) => void;
}

const lostAuthorities = 'ca has lost authorities: the connections ended whose certificates they had issued';

/** By the core's configuration; `listener`: its section there, for the log. */
export function connectionOptions(core: Core, listener: 'xds' | 'rest'): ConnectionOptions {
  return {
    bounds: core.admission.forListener(),
    accounts: core.accounts,
    maxConnectionAge: () => core.config.xds.maxConnectionAgeMs,
    reviewTime: () => core.config.drainTimeoutMs,
    reviewed: (connections) => {
      if (connections > 0) core.log.info(lostAuthorities, { listener, connections });
    },
    report: (message, error, peer) =>
      core.conditions.set(`${listener} listener`, `${message}: ${String(error)}`, 'warn', message, {
        ...(peer === undefined ? {} : { peer }),
        error,
      }),
  };
}
