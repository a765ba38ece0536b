import type { Config } from '../config/config.ts';
import type { Refusal } from '../downstream/admission.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Conditions } from '../observe/conditions.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { ConnectionBounds } from '../wire/client-connections.ts';
import { Code } from '../wire/grpc-status.ts';
import type { Peer } from '../wire/server-stream.ts';
import type { ClientRules } from './clients.ts';

/** What clients have open. */
export interface Load {
  readonly streams: number;
  readonly connections: number;
}

export interface AdmissionOptions {
  readonly limits: () => Config['limits'];
  readonly rules: () => ClientRules;
  /** What clients have open in the other processes of this relay. */
  readonly loadElsewhere: () => Load;
  /** The number of streams or connections of this process has changed. */
  readonly changed: () => void;
  readonly metrics: Metrics;
  readonly conditions: Conditions;
}

/** Who may connect and open streams, and how many: by the rules and limits in force. */
export class Admission {
  readonly #options: AdmissionOptions;
  #connections = 0;
  #full = false;

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /** Open connections, including those in their TLS handshake. */
  get connections(): number {
    return this.#connections;
  }

  /** The rules allow this peer nothing of the type (undefined: of any). */
  denial(peer: Peer, type: TypeUrl | undefined): Refusal | undefined {
    if (!this.#options.rules().accessOf(peer).deniesEverything(type)) return undefined;
    const message = `this client may not subscribe to ${type ?? 'anything'}`;
    return { reason: 'denied', status: { code: Code.PERMISSION_DENIED, message } };
  }

  /** Why a stream is not taken, with so many open; undefined if it is. `type`: undefined on ADS. */
  refusal(peer: Peer, type: TypeUrl | undefined, streams: number): Refusal | undefined {
    const { limits, loadElsewhere } = this.#options;
    const { account } = peer;
    const denial = this.denial(peer, type);
    if (denial !== undefined) return denial;
    const { maxStreams, maxStreamsPerPeer } = limits();
    const open = streams + loadElsewhere().streams;
    if (open >= maxStreams) {
      const message = `${open} streams are open, the maximum of this relay (limits.max_streams)`;
      return { reason: 'streams', status: { code: Code.RESOURCE_EXHAUSTED, message } };
    }
    if (maxStreamsPerPeer === 0 || account.exempt) return undefined;
    if (account.count('streams') < maxStreamsPerPeer) return undefined;
    const message = `${account.key} has ${maxStreamsPerPeer} streams open, the maximum for one peer (limits.max_streams_per_peer)`;
    return {
      reason: 'streams_per_peer',
      status: { code: Code.RESOURCE_EXHAUSTED, message },
      logged: message,
    };
  }

  streamOpened(peer: Peer): void {
    peer.account.enter('streams');
    this.#options.changed();
  }

  streamClosed(peer: Peer): void {
    peer.account.leave('streams');
    this.#options.changed();
  }

  /** The bounds of one listener's connections. All listeners share the limits. */
  forListener(): ConnectionBounds {
    let own = 0;
    return {
      admits: (open) => this.#admits(this.#connections - own + open),
      resized: (open) => {
        this.#connections += open - own;
        own = open;
        this.#options.changed();
      },
      joined: (peer) => this.#joined(peer),
      left: (peer) => peer.account.leave('connections'),
      endedExpired: () => this.#options.metrics.rejected('certificate_expired').inc(),
      refusedCertificate: (why) => this.#options.metrics.rejected(`certificate_${why}`).inc(),
      endedIdle: () => this.#options.metrics.rejected('idle').inc(),
    };
  }

  #admits(open: number): boolean {
    const { limits, loadElsewhere } = this.#options;
    const { maxConnections } = limits();
    const taken = open + loadElsewhere().connections < maxConnections;
    if (!taken) this.#options.metrics.rejected('connections').inc();
    if (taken === this.#full) this.#logFull(!taken, maxConnections);
    return taken;
  }

  #joined({ account, address }: Peer): string | undefined {
    const { limits, metrics, conditions } = this.#options;
    const { maxConnectionsPerPeer } = limits();
    const bounded = maxConnectionsPerPeer > 0 && !account.exempt;
    if (bounded && account.count('connections') >= maxConnectionsPerPeer) {
      const message = `${account.key} has ${maxConnectionsPerPeer} connections open, the maximum for one peer (limits.max_connections_per_peer)`;
      metrics.rejected('connections_per_peer').inc();
      conditions.set('rejected connections_per_peer', message, 'warn', message, { peer: address });
      return message;
    }
    account.enter('connections');
    return undefined;
  }

  #logFull(full: boolean, maxConnections: number): void {
    this.#full = full;
    const message = full
      ? `${maxConnections} connections are open, the maximum of this relay (limits.max_connections): others are refused`
      : 'connections are accepted again (limits.max_connections)';
    this.#options.conditions.set('connections', String(full), full ? 'warn' : 'info', message);
  }
}
