import type { Config } from '../config/config.ts';
import { type ClientsView, LocalClients } from '../inspect/local-clients.ts';
import { ok, type Result } from '../model/result.ts';
import type { Counters } from '../observe/counters.ts';
import type { Core } from './core.ts';
import { type ProcessRole, SINGLE_PROCESS } from './process-role.ts';
import { reloadPreview } from './reload-effect.ts';
import { RestListener } from './rest-listener.ts';
import { XdsListener, type XdsListenerCallbacks } from './xds-listener.ts';

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

/** Where clients connect: for each, its name on stdout and HOST:PORT, or unix:PATH. */
export interface ListenerAddress {
  readonly name: 'xds' | 'rest';
  readonly address: string;
}

/** The listeners for clients of one process. */
export class ClientListeners {
  readonly #xds: XdsListener;
  readonly #rest: RestListener | undefined;

  private constructor(xds: XdsListener, rest: RestListener | undefined) {
    this.#xds = xds;
    this.#rest = rest;
  }

  /** By the core's configuration. All of them, or the reason why one could not be opened. */
  static async open(core: Core, answers: XdsListenerCallbacks): Promise<Result<ClientListeners>> {
    const xds = await XdsListener.open(core, answers);
    if (!xds.ok) return xds;
    const { rest: config } = core.config;
    if (config === undefined) return ok(new ClientListeners(xds.value, undefined));
    const rest = await RestListener.open(core, config, answers);
    if (rest.ok) return ok(new ClientListeners(xds.value, rest.value));
    await xds.value.drain(0);
    return rest;
  }

  get addresses(): readonly ListenerAddress[] {
    const xds: ListenerAddress = { name: 'xds', address: this.#xds.address };
    return this.#rest === undefined ? [xds] : [xds, { name: 'rest', address: this.#rest.address }];
  }

  /** Ends what clients have open, over the time given; then all are closed. */
  async drain(milliseconds: number): Promise<void> {
    await Promise.all([this.#xds.drain(milliseconds), this.#rest?.drain(milliseconds)]);
  }
}
