import type { Config } from '../config/config.ts';
import type { Peer } from '../wire/server-stream.ts';
import { ClientRules } from './clients.ts';

/** How siblings are read by the rules in force. They send the parameters that were derived for their clients. */
export class SiblingRules extends ClientRules {
  readonly #onlyRelays: boolean;

  constructor(config: Config) {
    super({ ...config, parameters: [] });
    const isBound = config.parameters.some(({ trusted, values }) => trusted || values.length > 0);
    this.#onlyRelays = isBound || config.xds.tls?.ca !== undefined;
  }

  /**
   * Whether this peer may be a sibling, which chooses parameters freely and learns what others ask for. Where clients are
   * verified, or do not choose their parameters, it must be known as a relay.
   */
  admits(peer: Peer): boolean {
    return !this.#onlyRelays || this.isRelay(peer);
  }
}
