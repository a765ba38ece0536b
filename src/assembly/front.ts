import type { Config } from '../config/config.ts';
import { ok, type Result } from '../model/result.ts';
import type { ClientsView } from './clients-view.ts';
import { ALONE, type Core, type Place } from './core.ts';
import { LocalClients } from './local-clients.ts';
import { type XdsAnswers, XdsListener } from './xds-listener.ts';

/** Where clients connect. */
export interface Front {
  /** HOST:PORT, or unix:PATH. */
  readonly address: string;
  readonly clients: ClientsView;
  /** Why no client can be served; undefined while one can. */
  unready(): string | undefined;
  /** Everything that the relay has counted, in the Prometheus text format. */
  metricsText(): Promise<string>;
  reload(config: Config): void;
  /** Ends the streams of clients over the time given, and closes. */
  drain(milliseconds: number): Promise<void>;
}

/** How the relay serves its clients. */
export interface FrontKind {
  /** By what this process serves its own streams. */
  configOf(config: Config): Config;
  place(): Place;
  open(core: Core, config: Config, answers: XdsAnswers): Promise<Result<Front>>;
}

/** In this process. */
export const LOCAL: FrontKind = {
  configOf: (config) => config,
  place: () => ALONE,
  async open(core, _config, answers) {
    const opened = await XdsListener.open(core, answers);
    if (!opened.ok) return opened;
    const listener = opened.value;
    return ok({
      address: listener.address,
      clients: new LocalClients(core.relay),
      unready: () => undefined,
      metricsText: () => core.metricsText(),
      reload: () => {},
      drain: (milliseconds: number) => listener.drain(milliseconds),
    });
  },
};
