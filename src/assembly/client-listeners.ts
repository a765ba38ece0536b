import { ok, type Result } from '../model/result.ts';
import type { Core } from './core.ts';
import { RestListener } from './rest-listener.ts';
import { XdsListener, type XdsListenerCallbacks } from './xds-listener.ts';

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
