import { hkdfSync, randomBytes } from 'node:crypto';
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

/** A key for each hour since the epoch. */
export interface TicketKeys {
  /** Undefined: there is none. */
  of(hour: number): TicketKey | undefined;
}

/** From a secret: all who have it have the same keys. */
export class DerivedKeys implements TicketKeys {
  readonly #secret: Uint8Array;
  readonly #listener: string;
  /** Of the hours whose tickets are accepted, and a few more. */
  readonly #derived = new LRUCache<number, TicketKey>({ max: 6 });

  constructor(secret: Uint8Array, listener: string) {
    this.#secret = secret;
    this.#listener = listener;
  }

  of(hour: number): TicketKey {
    const info = `distributary TLS session tickets of ${this.#listener}, hour ${hour}`;
    return getOrMake(
      this.#derived,
      hour,
      () => new Uint8Array(hkdfSync('sha256', this.#secret, '', info, ticketKeyBytes)),
    );
  }
}

/** Drawn at random by one process, which gives them to others. */
export class DrawnKeys implements TicketKeys {
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

  entries(): (readonly [hour: number, key: TicketKey])[] {
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
      const key = keys?.of(hour);
      return key === undefined ? none : [1, ...partsOf(key), key.subarray(0, 16), randomBytes(16)];
    }
    if (!accepts) return none;
    const found = accepted(hour)
      .map((one) => keys?.of(one))
      .find((key) => key !== undefined && Buffer.compare(key.subarray(0, 16), name) === 0);
    // A client of TLS 1.3 uses a ticket once, so it gets another one.
    return found === undefined ? none : [2, ...partsOf(found)];
  };
}

const partsOf = (key: TicketKey): [hmac: Uint8Array, aes: Uint8Array] => [
  key.subarray(16, 32),
  key.subarray(32, 48),
];
