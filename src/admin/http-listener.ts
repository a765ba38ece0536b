import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { systemClock, type Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { printableJson } from '../model/text.ts';
import type { Log } from '../observe/log.ts';
import { type Account, type Accounts, boundlessAccounts } from '../wire/accounts.ts';
import { formatHostPort } from '../wire/address.ts';
import { ClientAuthorities } from '../wire/client-authorities.ts';
import type { HttpAnswer } from '../wire/http-answer.ts';
import { explainError } from '../wire/node-error.ts';
import { addressOf } from '../wire/peer.ts';
import { checkTlsMaterial, serverContextOptions, type TlsMaterial } from '../wire/tls-material.ts';

export interface HttpListenerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Undefined: plaintext. */
  readonly tls: TlsMaterial | undefined;
  /** Of those who connect; left out: they have none elsewhere. */
  readonly accounts?: Accounts;
  readonly log: Log;
}

/** In milliseconds: a request's head comes at once, its body soon, and a scraper asks again within the last of them. */
const times = {
  headersTimeout: 5000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1000,
  keepAliveTimeout: 65_000,
};
/** Connections of all, and of one address. Past them one makes room that is idle, or does not read its answer. */
const maxConnections = 1000;
const maxPerAddress = 250;
/** Requests of one connection that are not answered yet. Browsers and scrapers have one. */
const maxOpen = 16;

/** Listens with Node's own HTTP/1.1 server, for operators and what scrapes the relay. `name` is for the log. */
export async function startHttpListener(
  name: string,
  options: HttpListenerOptions,
  handle: RequestListener,
): Promise<Result<HttpListener>> {
  const { host, port, tls, log } = options;
  const checked = tls === undefined ? undefined : checkTlsMaterial(tls);
  if (checked?.ok === false) return checked;
  const server =
    tls === undefined
      ? createServer(times)
      : createTlsServer({
          ...times,
          ...serverContextOptions(tls),
          // Without `ca`, Node would believe the public authorities. With it, clients need a certificate.
          requestCert: tls.ca !== undefined,
          rejectUnauthorized: tls.ca !== undefined,
        });
  return new Promise((resolve) => {
    const refused = (error: Error): void =>
      resolve(fail(`cannot listen on ${formatHostPort(host, port)}: ${explainError(error)}`));
    server.once('error', refused);
    server.listen({ host, port }, () => {
      server.off('error', refused);
      server.on('error', (error) => log.error(`${name}: cannot accept connections`, { error }));
      resolve(ok(new HttpListener(server, name, options, handle)));
    });
  });
}

/** A connection, in its TLS handshake too. */
interface Visit {
  readonly socket: Socket;
  readonly account: Account;
  /** To requests, until they are sent. */
  readonly answers: Set<ServerResponse>;
  ends?: Timer;
}

export class HttpListener {
  /** HOST:PORT with the port that was bound. */
  readonly address: string;
  readonly #server: Server | TlsServer;
  readonly #accounts: Accounts;
  readonly #handle: RequestListener;
  /** What a place is called in accounts. */
  readonly #place: string;
  /** By the address and port of the other end; idle ones first, those that have been so for longest before the others. */
  readonly #visits = new Map<string, Visit>();
  #ca: Buffer | undefined;
  #authorities: ClientAuthorities | undefined;

  constructor(
    server: Server | TlsServer,
    name: string,
    { host, tls, accounts = boundlessAccounts(systemClock) }: HttpListenerOptions,
    handle: RequestListener,
  ) {
    this.#server = server;
    this.#accounts = accounts;
    this.#handle = handle;
    this.#place = `${name} connections`;
    this.#trust(tls?.ca);
    const bound = server.address();
    this.address =
      typeof bound === 'object' && bound !== null ? formatHostPort(bound.address, bound.port) : host;
    server.on('connection', (socket: Socket) => {
      if (!(socket instanceof TLSSocket)) this.#connected(socket);
    });
    server.on('secureConnection', (socket: TLSSocket) => this.#verified(socket));
    server.on('request', (request, response) => this.#requested(request, response));
  }

  /** The new certificate holds for connections from now on. If `ca` is another one, those that are open are cut. */
  setTls(material: TlsMaterial): Result<undefined> {
    const server = this.#server;
    if (!('setSecureContext' in server)) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    server.setSecureContext(serverContextOptions(material));
    const { ca } = material;
    if (ca !== undefined && this.#ca?.equals(ca) !== true) server.closeAllConnections();
    this.#trust(ca);
    return ok(undefined);
  }

  #trust(ca: Buffer | undefined): void {
    this.#ca = ca;
    this.#authorities = ca && new ClientAuthorities(ca);
  }

  /** Stops listening and cuts what is open: no answer of this listener takes long. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  #connected(socket: Socket): void {
    const key = addressOf(socket);
    const account = this.#accounts.of({ address: key, unix: false, uriSans: [], dnsSans: [] });
    const isFull = this.#visits.size >= maxConnections;
    if (
      (isFull || account.count(this.#place) >= maxPerAddress) &&
      !this.#makeRoom(isFull ? undefined : account)
    ) {
      socket.destroy();
      return;
    }
    const visit: Visit = { socket, account, answers: new Set() };
    account.enter(this.#place);
    this.#visits.set(key, visit);
    socket.on('error', () => undefined);
    socket.once('close', () => {
      visit.ends?.cancel();
      account.leave(this.#place);
      if (this.#visits.get(key) === visit) this.#visits.delete(key);
    });
  }

  /**
   * Whoever probes always gets in: a connection that asks for nothing gives way, else one whose client does not read what
   * it asked for. `of`: only this peer's.
   */
  #makeRoom(of: Account | undefined): boolean {
    const own = this.#visits.entries().filter(([, { account }]) => of === undefined || account === of);
    const visits = [...own];
    const victim =
      visits.find(([, { answers }]) => answers.size === 0) ??
      visits.find(([, { answers }]) => answers.values().some(isUnread));
    if (victim === undefined) return false;
    const [key, { socket }] = victim;
    this.#visits.delete(key);
    socket.destroy();
    return true;
  }

  /** A resumed TLS session was verified when it began, so its certificate may have ended since. */
  #verified(socket: TLSSocket): void {
    const certificate = socket.authorized ? socket.getPeerX509Certificate() : undefined;
    if (certificate === undefined || this.#authorities === undefined) return;
    const left = this.#authorities.clientOf(certificate).validUntil - Date.now();
    const visit = this.#visits.get(addressOf(socket));
    // A handshake may have begun with the authorities of before.
    if (left <= 0 || visit === undefined || !this.#authorities.vouchFor(certificate)) socket.destroy();
    else visit.ends = systemClock.after(left, () => socket.destroy());
  }

  #requested(request: IncomingMessage, response: Parameters<RequestListener>[1]): void {
    const key = addressOf(request.socket);
    const visit = this.#visits.get(key);
    if (visit === undefined || visit.answers.size >= maxOpen) {
      request.socket.destroy();
      return;
    }
    visit.answers.add(response);
    response.once('close', () => {
      visit.answers.delete(response);
      // It is the last that was in use.
      if (this.#visits.delete(key)) this.#visits.set(key, visit);
    });
    // Charged, and never made to wait: probes and operators come first.
    visit.account.work(() => this.#handle(request, response));
  }
}

/** What is made of it, its client has not taken. */
const isUnread = ({ writableEnded, writableFinished, writableNeedDrain }: ServerResponse): boolean =>
  writableNeedDrain || (writableEnded && !writableFinished);

/* Whole answers of the plain HTTP routes. */

/** Peers choose some of its texts, and operators read it in a terminal. */
export function json(value: unknown, status = 200): HttpAnswer {
  return { status, type: 'application/json', body: `${printableJson(JSON.stringify(value, null, 2))}\n` };
}

/** Without the body, if HEAD asks. */
export function respond(response: ServerResponse, answer: HttpAnswer): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  response.writeHead(answer.status, {
    'content-type': answer.type,
    'content-length': Buffer.byteLength(answer.body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...(bodyComes(response.req) ? { connection: 'close' } : {}),
    ...answer.headers,
  });
  response.end(response.req.method === 'HEAD' ? undefined : answer.body);
}

/** What nobody asked for is not read to its end. */
const bodyComes = ({ complete, headers }: IncomingMessage): boolean =>
  !complete && (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0);
