import { X509Certificate } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { DrawnKeys } from './ticket-keys.ts';

/** A fleet has a few. Only clients with a verified certificate add any. */
const maxIntermediates = 256;

/**
 * The intermediates that clients with a verified certificate have shown to a listener, in whichever process. A client that
 * resumes its session does not show them again.
 */
export class Intermediates {
  /** By fingerprint. */
  readonly #all = new LRUCache<string, X509Certificate>({ max: maxIntermediates });
  #revision = 0;
  readonly #shown: (certificate: X509Certificate) => void;

  /** `shown`: a client of this process was the first to show it. */
  constructor(shown: (certificate: X509Certificate) => void = () => {}) {
    this.#shown = shown;
  }

  /** Another one for each new one. */
  get revision(): number {
    return this.#revision;
  }

  /** The least recently seen first. */
  values(): IteratorObject<X509Certificate> {
    return this.#all.rvalues().filter((one) => one !== undefined);
  }

  /** False: it is not among them. */
  see({ fingerprint256 }: X509Certificate): boolean {
    return this.#all.get(fingerprint256) !== undefined;
  }

  show(certificate: X509Certificate): void {
    this.#add(certificate);
    this.#shown(certificate);
  }

  /** One that was shown to another process (DER). True: it was not among them. */
  take(der: Uint8Array): boolean {
    const certificate = new X509Certificate(der);
    const isNew = !this.see(certificate);
    if (isNew) this.#add(certificate);
    return isNew;
  }

  #add(certificate: X509Certificate): void {
    this.#all.set(certificate.fingerprint256, certificate);
    this.#revision++;
  }
}

/** For clients, as their sections of the configuration are called. */
export type ClientListenerName = 'xds' | 'rest';

/** What the processes of a relay have in common of one listener's TLS sessions. Plain data, as secret as a private key. */
export interface SharedSessions {
  readonly listener: ClientListenerName;
  readonly keys: readonly (readonly [hour: number, key: Uint8Array])[];
  /** DER. */
  readonly intermediates: readonly Uint8Array[];
}

/** What one listener resumes TLS sessions by. */
export class TlsSessions {
  readonly listener: ClientListenerName;
  readonly keys = new DrawnKeys();
  readonly intermediates: Intermediates;

  /** `shown`: see Intermediates. */
  constructor(listener: ClientListenerName, shown?: (certificate: X509Certificate) => void) {
    this.listener = listener;
    this.intermediates = new Intermediates(shown);
  }

  shared(): SharedSessions {
    const { listener, keys, intermediates } = this;
    return {
      listener,
      keys: keys.entries(),
      intermediates: Array.from(intermediates.values(), ({ raw }) => raw),
    };
  }

  take({ keys, intermediates }: SharedSessions): void {
    this.keys.take(keys);
    for (const der of intermediates) this.intermediates.take(der);
  }
}
