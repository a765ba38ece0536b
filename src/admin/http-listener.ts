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
import { systemClock, type Timer, within } from '../model/clock.ts';
import { ok, type Result } from '../model/result.ts';
import { printableJson } from '../model/text.ts';
import type { Log } from '../observe/log.ts';
import { type Account, type Accounts, boundlessAccounts } from '../wire/accounts.ts';
import { formatHostPort } from '../wire/address.ts';
import { ClientAuthorities, maxChainLength } from '../wire/client-authorities.ts';
import { BodyPieces } from '../wire/half-sent.ts';
import { endAfter, type HttpAnswer, refusedHead } from '../wire/http-answer.ts';
import { listenOn } from '../wire/listener.ts';
import { addressOf, issuersOf, nobody, verifiedCertificate } from '../wire/peer.ts';
import { serverContextOptions, type TlsMaterial } from '../wire/tls-material.ts';

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
/** Connections of all, and of one address. Past them one makes room that asks for nothing, or does not read an answer. */
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
  const served = { ...times, requireHostHeader: false };
  const server =
    tls === undefined
      ? createServer(served)
      : createTlsServer({
          ...served,
          ...serverContextOptions(tls),
          // Without `ca`, Node would believe the public authorities. With it, clients need a certificate.
          requestCert: tls.ca !== undefined,
          rejectUnauthorized: tls.ca !== undefined,
        });
  const listening = await listenOn(server, { host, port }, formatHostPort(host, port), (error) =>
    log.error(`${name}: cannot accept connections`, { error }),
  );
  return listening.ok ? ok(listenerOn(server, name, listening.value, options, handle)) : listening;
}

/** What is being answered when a listener closes may take so long, in milliseconds. */
const lastAnswersMs = 500;

/** Stops listening. What is being answered has a moment to end, and is cut then. */
export async function closeServer(server: Server | TlsServer): Promise<void> {
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  server.close(() => resolve());
  await within(systemClock, lastAnswersMs, closed);
  server.closeAllConnections();
  await closed;
}

/** A connection, in its TLS handshake too. */
interface Visit {
  readonly socket: Socket;
  readonly account: Account;
  /** To requests, until they are sent. */
  readonly answers: Set<ServerResponse>;
  ends?: Timer;
}

export type HttpListener = ReturnType<typeof listenerOn>;

function listenerOn(
  server: Server | TlsServer,
  name: string,
  address: string,
  { tls, accounts = boundlessAccounts(systemClock) }: HttpListenerOptions,
  handle: RequestListener,
) {
  /** What a place is called in accounts. */
  const place = `${name} connections`;
  /** By the address and port of the other end; idle ones first, those that have been so for longest before the others. */
  const visits = new Map<string, Visit>();
  let ca = tls?.ca;
  let authorities = ca && new ClientAuthorities(ca);
  server.on('connection', (socket: Socket) => {
    if (!(socket instanceof TLSSocket)) connected(socket);
  });
  server.on('secureConnection', verified);
  server.on('request', requested);
  server.on('checkExpectation', requested);

  return {
    /** HOST:PORT with the port that was bound. */
    address,
    /**
     * The new certificate holds for connections from now on. If `ca` is another one, those that are open are cut. It was
     * checked when it was read.
     */
    setTls(material: TlsMaterial): void {
      if ('setSecureContext' in server) server.setSecureContext(serverContextOptions(material));
      if (material.ca !== undefined && ca?.equals(material.ca) !== true) server.closeAllConnections();
      ca = material.ca;
      authorities = ca && new ClientAuthorities(ca);
    },
    close: () => closeServer(server),
  };

  function connected(socket: Socket): void {
    const key = addressOf(socket);
    const account = accounts.of({ address: key, unix: false, ...nobody });
    const isFull = visits.size >= maxConnections;
    if ((isFull || account.count(place) >= maxPerAddress) && !makeRoom(isFull ? undefined : account)) {
      socket.destroy();
      return;
    }
    const visit: Visit = { socket, account, answers: new Set() };
    account.enter(place);
    visits.set(key, visit);
    socket.on('error', () => undefined);
    socket.once('close', () => {
      visit.ends?.cancel();
      account.leave(place);
      if (visits.get(key) === visit) visits.delete(key);
    });
  }

  /**
   * Whoever probes always gets in: a connection that has asked for nothing, or of whose request a part is still to come,
   * gives way, else one whose client does not read what it asked for. `of`: only this peer's.
   */
  function makeRoom(of: Account | undefined): boolean {
    const own = [...visits.entries().filter(([, { account }]) => of === undefined || account === of)];
    const victim =
      own.find(([, { answers }]) => answers.values().every(({ req }) => !req.complete)) ??
      own.find(([, { answers }]) => answers.values().some(isUnread));
    if (victim === undefined) return false;
    const [key, { socket }] = victim;
    visits.delete(key);
    socket.destroy();
    return true;
  }

  /** A resumed TLS session was verified when it began, so its certificate may have ended since. */
  function verified(socket: TLSSocket): void {
    const certificate = verifiedCertificate(socket);
    if (certificate === undefined || authorities === undefined) return;
    const issuers = () => issuersOf(socket, maxChainLength);
    const { validUntil, knowsIssuers } = authorities.clientOf(certificate, issuers);
    const left = validUntil - Date.now();
    const visit = visits.get(addressOf(socket));
    // A handshake may have begun with the authorities of before.
    if (left <= 0 || visit === undefined || !knowsIssuers) socket.destroy();
    else visit.ends = systemClock.after(left, () => socket.destroy());
  }

  function requested(request: IncomingMessage, response: Parameters<RequestListener>[1]): void {
    const key = addressOf(request.socket);
    const visit = visits.get(key);
    if (visit === undefined || visit.answers.size >= maxOpen) {
      request.socket.destroy();
      return;
    }
    visit.answers.add(response);
    response.once('close', () => {
      visit.answers.delete(response);
      // It is the last that was in use.
      if (visits.delete(key)) visits.set(key, visit);
    });
    // Charged, and never made to wait: probes and operators come first.
    visit.account.work(() => {
      const refused = refusedHead(request);
      if (refused === undefined) handle(request, response);
      else respond(response, refused);
    });
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

/** Without the body, if HEAD asks. What is sent beside the answer is read, and thrown away. */
export function respond(response: ServerResponse, answer: HttpAnswer): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { req: request } = response;
  const comes = bodyComes(request);
  response.writeHead(answer.status, {
    'content-type': answer.type,
    'content-length': Buffer.byteLength(answer.body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...(comes ? { connection: 'close' } : {}),
    ...answer.headers,
  });
  if (comes) discard(request);
  if (request.method === 'HEAD') response.end();
  else if (comes) endAfter(response, answer.body);
  else response.end(answer.body);
}

function discard(request: IncomingMessage): void {
  const body = new BodyPieces();
  request.on('data', (piece: Buffer) => {
    body.skip(piece);
    if (body.areTooMany) request.socket.destroy();
  });
}

const bodyComes = ({ complete, headers }: IncomingMessage): boolean =>
  !complete && (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0);
