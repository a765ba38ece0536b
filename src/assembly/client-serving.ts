import type { Config } from '../config/config.ts';
import type { ClientsView } from '../inspect/clients-view.ts';
import { LocalClients } from '../inspect/local-clients.ts';
import { ok, type Result } from '../model/result.ts';
import type { Counters } from '../observe/counters.ts';
import { ClientListeners, type ListenerAddress } from './client-listeners.ts';
import type { Core } from './core.ts';
import { type ProcessRole, SINGLE_PROCESS } from './process-role.ts';
import { reloadPreview } from './reload-effect.ts';
import type { XdsListenerCallbacks } from './xds-listener.ts';

/** Where clients connect. */
export interface ClientServing {
  readonly addresses: readonly ListenerAddress[];
  readonly clients: ClientsView;
  /** Why no client can be served; undefined while one can. */
  notReadyReason(): string | undefined;
  /** Everything that the relay has counted, in the Prometheus text format. */
  metricsText(): Promise<string>;
  /** Of each process, for the charts of the status page. */
  counters(): Promise<readonly Counters[]>;
  reload(config: Config): void;
  /** Ends the streams of clients over the time given, and closes. */
  drain(milliseconds: number): Promise<void>;
}

/** How the relay serves its clients. */
export interface ServingMode {
  /** The configuration by which this process serves streams itself. */
  configOf(config: Config): Config;
  role(): ProcessRole;
  open(core: Core, config: Config, answers: XdsListenerCallbacks): Promise<Result<ClientServing>>;
}

/** In this process. */
export const IN_PROCESS: ServingMode = {
  configOf: (config) => config,
  role: () => SINGLE_PROCESS,
  async open(core, _config, answers) {
    const opened = await ClientListeners.open(core, answers);
    if (!opened.ok) return opened;
    const listeners = opened.value;
    return ok({
      addresses: listeners.addresses,
      clients: new LocalClients(
        core.relay,
        core.accounts,
        reloadPreview(core),
        () => core.config.rollout?.canary,
      ),
      notReadyReason: () => undefined,
      metricsText: () => core.metricsText(),
      counters: () => Promise.resolve([core.counters()]),
      reload: () => {},
      drain: (milliseconds: number) => listeners.drain(milliseconds),
    });
  },
};
