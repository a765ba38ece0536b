import type { Config } from '../config/config.ts';
import type { ClientsView } from '../inspect/local-clients.ts';
import { ok, type Result } from '../model/result.ts';
import type { Counters } from '../observe/counters.ts';
import type { ClientAnswers } from './client-listener.ts';
import type { Core, ProcessRole } from './core.ts';
import { openRestListener } from './rest-listener.ts';
import { openXdsListener } from './xds-listener.ts';

/** Where clients connect: for each, its name on stdout and HOST:PORT, or unix:PATH. */
export interface ListenerAddress {
  readonly name: 'xds' | 'rest';
  readonly address: string;
}

/** The listeners for clients of one process. */
export interface ClientListeners {
  readonly addresses: readonly ListenerAddress[];
  /** Ends what clients have open, over the time given; then all are closed. */
  drain(milliseconds: number): Promise<void>;
}

/** Where clients connect, here or in workers. */
export interface ClientServing extends ClientListeners {
  readonly clients: ClientsView;
  /** Why no client can be served; undefined while one can. */
  notReadyReason(): string | undefined;
  /** Everything that the relay has counted, in the Prometheus text format. */
  metricsText(): Promise<string>;
  /** Of each process, for the charts of the status page. */
  counters(): Promise<readonly Counters[]>;
  reload(config: Config): void;
}

/** How the relay serves its clients. */
export interface ServingMode {
  /** The configuration by which this process serves streams itself. */
  configOf(config: Config): Config;
  readonly role: ProcessRole;
  /** `own`: the clients of this process. */
  open(core: Core, config: Config, answers: ClientAnswers, own: ClientsView): Promise<Result<ClientServing>>;
}

/** In this process. */
export const IN_PROCESS: ServingMode = {
  configOf: (config) => config,
  role: {},
  async open(core, _config, answers, clients) {
    const opened = await openClientListeners(core, answers);
    if (!opened.ok) return opened;
    return ok({
      ...opened.value,
      clients,
      notReadyReason: () => undefined,
      metricsText: () => core.metrics.text(),
      counters: () => Promise.resolve([core.counters()]),
      reload: () => {},
    });
  },
};

/** By the core's configuration. All of them, or the reason why one could not be opened. */
export async function openClientListeners(
  core: Core,
  answers: ClientAnswers,
): Promise<Result<ClientListeners>> {
  const xds = await openXdsListener(core, answers);
  if (!xds.ok) return xds;
  const rest = core.config.rest && (await openRestListener(core, core.config.rest, answers));
  if (rest?.ok === false) {
    await xds.value.drain(0);
    return rest;
  }
  const addresses: ListenerAddress[] = [{ name: 'xds', address: xds.value.address }];
  if (rest !== undefined) addresses.push({ name: 'rest', address: rest.value.address });
  return ok({
    addresses,
    async drain(milliseconds) {
      await Promise.all([xds.value.drain(milliseconds), rest?.value.drain(milliseconds)]);
    },
  });
}
