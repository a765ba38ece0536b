import type { X509Certificate } from 'node:crypto';
import type { Clock } from '../model/clock.ts';
import { ClientAuthorities } from './client-authorities.ts';
import type { ClientSession } from './client-session.ts';
import { spread } from './drain.ts';
import { handshakeTimeoutMs } from './http2-settings.ts';
import { verifiedCertificate } from './peer.ts';

export interface CertificateReviewOptions {
  readonly clock: Clock;
  /** In [0, 1). */
  readonly random: () => number;
  /** Milliseconds, asked for at each review: over so long connections end. */
  readonly durationMs: () => number;
  /** A review is over; so many connections ended. */
  readonly done: (ended: number) => void;
}

/** A signature takes a tenth of a millisecond or two: however short the time, a review must leave some for the others. */
const perMillisecond = 4;

/** Ends the connections of a listener whose certificates its authorities do not vouch for any more. */
export class CertificateReview {
  readonly #options: CertificateReviewOptions;
  readonly #authorities: ClientAuthorities;
  /** Until then a handshake may complete that began with the old authorities. */
  #handshakesUntil = 0;
  #running: { cancel(): void } | undefined;

  constructor(ca: Buffer, options: CertificateReviewOptions) {
    this.#options = options;
    this.#authorities = new ClientAuthorities(ca);
  }

  /** Of a connection that was made just now: false if its authority went during the handshake. */
  admits(certificate: X509Certificate): boolean {
    this.#authorities.remember(certificate);
    return this.#options.clock.now() >= this.#handshakesUntil || this.#authorities.vouchFor(certificate);
  }

  /** Until when a connection with this certificate may last, in milliseconds since the epoch. */
  validUntil(certificate: X509Certificate): number {
    return this.#authorities.validUntil(certificate);
  }

  /**
   * If an authority was removed, every connection is checked and, if it has to be, ended: in random order and spread over
   * time, so that neither blocks the process.
   */
  replace<T>(
    ca: Buffer,
    sessions: ReadonlyMap<ClientSession, T>,
    end: (session: ClientSession, of: T) => void,
  ) {
    if (!this.#authorities.replace(ca)) return;
    const { clock, random, durationMs, done } = this.#options;
    this.#handshakesUntil = clock.now() + handshakeTimeoutMs;
    let left = sessions.size;
    let ended = 0;
    this.stop();
    this.#running = spread(
      sessions,
      Math.max(durationMs(), left / perMillisecond),
      clock,
      random,
      ([session, of]) => {
        if (!this.#isVouchedFor(session)) {
          ended++;
          end(session, of);
        }
        if (--left === 0) done(ended);
      },
    );
  }

  stop(): void {
    this.#running?.cancel();
  }

  /** A client without a verified certificate stays: it got nothing by a certificate. */
  #isVouchedFor(session: ClientSession): boolean {
    const certificate = verifiedCertificate(session);
    return certificate === undefined || this.#authorities.vouchFor(certificate);
  }
}
