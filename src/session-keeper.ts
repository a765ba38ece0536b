import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  hkdfSync,
  randomBytes,
  X509Certificate,
} from 'node:crypto';
import * as z from 'zod';
import type { ClientTls, Config } from './config/config.ts';
import type { Clock, Timer } from './model/clock.ts';
import { errorMessage } from './model/result.ts';
import type { Log } from './observe/log.ts';
import { readNamedSync } from './wire/named-file.ts';
import { type ClientListenerName, hourOf, type SharedSessions, TlsSessions } from './wire/tls-sessions.ts';

/** Of a listener for clients. Undefined: it resumes none. */
export type SessionsOf = (listener: ClientListenerName) => TlsSessions | undefined;

/** Keys are there an hour ahead, so the hour may begin between two looks. Milliseconds. */
const lookMs = 600_000;
/** They are written with each write of the cache. A fleet has a few. */
const mostSaved = 32;

const bytes = z.base64().transform((text) => Buffer.from(text, 'base64'));
const saved = z.object({
  keys: z.array(z.tuple([z.number(), bytes])).readonly(),
  intermediates: z.array(bytes).readonly(),
});

const purpose = (listener: string): string => `distributary TLS sessions of ${listener}, version 1`;

/**
 * The TLS sessions of all listeners for clients, in the process that has the configuration: it draws the keys of tickets,
 * and keeps them for a restart, sealed by each listener's private key (ADR 180).
 */
export class SessionKeeper {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #all: ReadonlyMap<ClientListenerName, { readonly sessions: TlsSessions; readonly tls: ClientTls }>;
  /** Other processes need what has changed. */
  #changed = (): void => {};
  #timer: Timer | undefined;

  constructor({ xds, rest }: Pick<Config, 'xds' | 'rest'>, clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
    const named = [['xds', xds.tls] as const, ['rest', rest?.tls] as const];
    this.#all = new Map(
      named.flatMap(([listener, tls]) =>
        tls?.sessionTickets === true ? [[listener, { sessions: new TlsSessions(listener), tls }]] : [],
      ),
    );
  }

  readonly of: SessionsOf = (listener) => this.#all.get(listener)?.sessions;

  /** For other processes. */
  shared(): readonly SharedSessions[] {
    return Array.from(this.#all.values(), ({ sessions }) => sessions.shared());
  }

  /** Called for each change that other processes need. */
  onChange(listener: () => void): void {
    this.#changed = listener;
  }

  /** `sealed`: what `sealed()` gave before a restart. */
  start(sealed: Readonly<Record<string, string>> = {}): void {
    for (const listener of this.#all.keys()) this.#open(listener, sealed[listener]);
    this.#look();
  }

  stop(): void {
    this.#timer?.cancel();
  }

  /** A client showed it to another process. */
  shown(listener: ClientListenerName, intermediate: Uint8Array): void {
    if (this.of(listener)?.intermediates.take(intermediate) === true) this.#changed();
  }

  /** By listener, for the disk. The private key is read each time, as it may be another one: the next start reads it too. */
  sealed(): Readonly<Record<string, string>> {
    const base64 = (one: Uint8Array): string => Buffer.from(one).toString('base64');
    const entries = [...this.#all].flatMap(([listener, { sessions, tls }]) => {
      const { keys, intermediates } = sessions.shared();
      const content = {
        keys: keys.map(([hour, key]) => [hour, base64(key)]),
        intermediates: intermediates.slice(-mostSaved).map(base64),
      };
      try {
        const privateKey = readNamedSync(tls.privateKey);
        const sealed = seal(Buffer.from(JSON.stringify(content)), privateKey, purpose(listener));
        return [[listener, base64(sealed)] as const];
      } catch {
        // It is being replaced: the next write has it.
        return [];
      }
    });
    return Object.fromEntries(entries);
  }

  #open(listener: ClientListenerName, text: string | undefined): void {
    const own = this.#all.get(listener);
    if (own === undefined || text === undefined) return;
    try {
      const privateKey = readNamedSync(own.tls.privateKey);
      const content = unseal(Buffer.from(text, 'base64'), privateKey, purpose(listener));
      const { keys, intermediates } = saved.parse(JSON.parse(content.toString()));
      const isValid = (der: Buffer): boolean =>
        new X509Certificate(der).validToDate.getTime() > this.#clock.now();
      own.sessions.take({
        listener,
        keys: own.tls.ticketSecret === undefined ? keys : [],
        intermediates: intermediates.filter(isValid),
      });
    } catch (error) {
      const message =
        'TLS sessions of before the restart are not resumed: their keys were sealed by another private key, or are damaged';
      this.#log.info(message, { listener, reason: errorMessage(error) });
    }
  }

  #look(): void {
    const hour = hourOf(this.#clock.now());
    const renewed = this.#all
      .values()
      .filter(({ tls, sessions }) => tls.ticketSecret === undefined && sessions.keys.renew(hour))
      .toArray();
    if (renewed.length > 0) this.#changed();
    this.#timer = this.#clock.after(lookMs, () => this.#look());
  }
}

/** AES-256-GCM. Bytes. */
const sizes = { salt: 16, key: 32, nonce: 12, tag: 16 };

/**
 * Encrypts so that only who has the private key can read or change it. `purpose` is authenticated: what was sealed for
 * another one is not opened. Throws if that is no private key.
 */
function seal(content: Buffer, privateKey: Buffer, purpose: string): Buffer {
  const salt = randomBytes(sizes.salt);
  const { key, nonce } = keyOf(privateKey, salt, purpose);
  const cipher = createCipheriv('aes-256-gcm', key, nonce);
  const encrypted = Buffer.concat([cipher.update(content), cipher.final()]);
  return Buffer.concat([salt, cipher.getAuthTag(), encrypted]);
}

/** Throws if it was sealed by another key or for another purpose, or is damaged. */
function unseal(sealed: Buffer, privateKey: Buffer, purpose: string): Buffer {
  const [salt, tag, encrypted] = [
    sealed.subarray(0, sizes.salt),
    sealed.subarray(sizes.salt, sizes.salt + sizes.tag),
    sealed.subarray(sizes.salt + sizes.tag),
  ];
  const { key, nonce } = keyOf(privateKey, salt, purpose);
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: sizes.tag }).setAuthTag(tag);
  return Buffer.concat([decipher.update(encrypted), decipher.final()]);
}

/** With another salt it is another key, so a nonce is never used twice with one. `privateKey`: PEM; its form does not count. */
function keyOf(privateKey: Buffer, salt: Buffer, purpose: string) {
  const secret = createPrivateKey(privateKey).export({ type: 'pkcs8', format: 'der' });
  const derived = Buffer.from(hkdfSync('sha256', secret, salt, purpose, sizes.key + sizes.nonce));
  return { key: derived.subarray(0, sizes.key), nonce: derived.subarray(sizes.key) };
}
