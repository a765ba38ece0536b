import { hkdfSync, randomBytes, X509Certificate } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { getOrMake } from '../model/maps.ts';

/**
 * A key of TLS session tickets, as Node has them: 16 bytes that name it, 16 for the HMAC, 16 for AES. Whoever has one can
 * make a ticket for any client certificate, so it is kept as a private key is.
 */
type TicketKey = Uint8Array;
const ticketKeyBytes = 48;

const hourMs = 3_600_000;
/** Of a time in milliseconds since the epoch. */
export const hourOf = (milliseconds: number): number => Math.floor(milliseconds / hourMs);

/** Seconds. No ticket is accepted for longer, as its key is not. */
export const sessionTimeout = (2 * hourMs) / 1000;

/** The hours whose tickets are accepted: the hour itself, the one before, and as clocks differ the next one. */
const accepted = (hour: number): readonly number[] => [hour, hour - 1, hour + 1];

/** A key for each hour since the epoch; undefined: there is none. */
export type TicketKeys = (hour: number) => TicketKey | undefined;

/** From a secret: all who have it have the same keys. */
export function derivedKeys(secret: Uint8Array, listener: string): TicketKeys {
  /** Of the hours whose tickets are accepted, and a few more. */
  const derived = new LRUCache<number, TicketKey>({ max: 6 });
  const derive = (hour: number): TicketKey => {
    const info = `distributary TLS session tickets of ${listener}, hour ${hour}`;
    return new Uint8Array(hkdfSync('sha256', secret, '', info, ticketKeyBytes));
  };
  return (hour) => getOrMake(derived, hour, derive);
}

/** Drawn at random by one process, which gives them to others. */
class DrawnKeys {
  #keys: ReadonlyMap<number, TicketKey> = new Map();

  of(hour: number): TicketKey | undefined {
    return this.#keys.get(hour);
  }

  /** Of the next hour too, so that each process has it when its clock gets there. True: some are new. */
  renew(hour: number): boolean {
    const before = this.#keys;
    this.take(
      accepted(hour).flatMap((one) => {
        const key = before.get(one) ?? (one < hour ? undefined : randomBytes(ticketKeyBytes));
        return key === undefined ? [] : [[one, key] as const];
      }),
    );
    return [...this.#keys.keys()].some((one) => !before.has(one));
  }

  /** In place of those that there are. */
  take(keys: Iterable<readonly [hour: number, key: TicketKey]>): void {
    this.#keys = new Map(keys);
  }

  entries(): readonly (readonly [hour: number, key: TicketKey])[] {
    return [...this.#keys];
  }
}

/**
 * What Node's SecureContext calls with a ticket's key name and initialization vector, to encrypt a new ticket or to
 * decrypt one. The answer: 0 for no ticket or not accepted, 1, or 2 for accepted and to be replaced; the keys of HMAC and
 * AES; for a new ticket its name and vector.
 */
type TicketKeyCallback = (
  name: Uint8Array,
  vector: Uint8Array,
  encrypts: boolean,
) => readonly [answer: number, ...Uint8Array[]];

const blank = new Uint8Array(16);

/** Drawn ahead: to ask for random bytes takes as long for a thousand vectors as for one, and a client gets two tickets. */
let vectors = Buffer.alloc(0);
function newVector(): Uint8Array {
  if (vectors.length === 0) vectors = randomBytes(1024 * blank.length);
  const vector = vectors.subarray(0, blank.length);
  vectors = vectors.subarray(blank.length);
  return vector;
}

/** Node looks at the keys of such an answer too. */
const none = [0, blank, blank, blank, blank] as const;

/** `accepts`: false gives new tickets to clients and takes none. */
export function ticketKeyCallback(
  keys: TicketKeys | undefined,
  now: () => number,
  accepts: boolean,
): TicketKeyCallback {
  return (name, _vector, encrypts) => {
    const hour = hourOf(now());
    if (encrypts) {
      const key = keys?.(hour);
      return key === undefined ? none : [1, ...partsOf(key), key.subarray(0, 16), newVector()];
    }
    if (!accepts) return none;
    const found = accepted(hour)
      .map((one) => keys?.(one))
      .find((key) => key !== undefined && Buffer.compare(key.subarray(0, 16), name) === 0);
    // A client of TLS 1.3 uses a ticket once, so it gets another one.
    return found === undefined ? none : [2, ...partsOf(found)];
  };
}

const partsOf = (key: TicketKey): [hmac: Uint8Array, aes: Uint8Array] => [
  key.subarray(16, 32),
  key.subarray(32, 48),
];

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
export type SharedSessions = ReturnType<TlsSessions['shared']>;

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

  /** `intermediates`: DER. */
  shared() {
    const intermediates: readonly Uint8Array[] = Array.from(this.intermediates.values(), ({ raw }) => raw);
    return { listener: this.listener, keys: this.keys.entries(), intermediates };
  }

  take({ keys, intermediates }: SharedSessions): void {
    this.keys.take(keys);
    for (const der of intermediates) this.intermediates.take(der);
  }
}
