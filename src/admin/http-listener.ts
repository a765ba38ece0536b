import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import { fail, ok, type Result } from '../model/result.ts';
import type { Log } from '../observe/log.ts';
import { formatHostPort } from '../wire/address.ts';
import { explainError } from '../wire/node-error.ts';
import { checkTlsMaterial, secureContextOptions, type TlsMaterial } from '../wire/tls-material.ts';

export interface HttpListenerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Undefined: plaintext. */
  readonly tls: TlsMaterial | undefined;
  readonly log: Log;
}

/** How long a request, in milliseconds, may take to arrive: what is slower holds a socket and nothing else. */
const requestTimeoutMs = 30_000;
const maxConnections = 1000;

/** Listens with Node's own HTTP/1.1 server, for operators and what scrapes the relay. `name` is for the log. */
export async function startHttpListener(
  name: string,
  { host, port, tls, log }: HttpListenerOptions,
  handle: RequestListener,
): Promise<Result<HttpListener>> {
  const checked = tls === undefined ? undefined : checkTlsMaterial(tls);
  if (checked?.ok === false) return checked;
  const server = createNodeServer(tls, handle);
  return new Promise((resolve) => {
    const refused = (error: Error): void =>
      resolve(fail(`cannot listen on ${formatHostPort(host, port)}: ${explainError(error)}`));
    server.once('error', refused);
    server.listen({ host, port }, () => {
      server.off('error', refused);
      server.on('error', (error) => log.error(`${name}: cannot accept connections`, { error }));
      resolve(ok(new HttpListener(server, host, tls?.ca)));
    });
  });
}

function createNodeServer(tls: TlsMaterial | undefined, handle: RequestListener): Server | TlsServer {
  const timeouts = { requestTimeout: requestTimeoutMs, headersTimeout: requestTimeoutMs };
  const server =
    tls === undefined
      ? createServer(timeouts, handle)
      : createTlsServer(
          {
            ...timeouts,
            ...secureContextOptions(tls),
            // Without `ca`, Node would believe the public authorities. With it, clients need a certificate.
            requestCert: tls.ca !== undefined,
            rejectUnauthorized: tls.ca !== undefined,
          },
          handle,
        );
  server.maxConnections = maxConnections;
  return server;
}

export class HttpListener {
  /** HOST:PORT with the port that was bound. */
  readonly address: string;
  readonly #server: Server | TlsServer;
  #ca: Buffer | undefined;

  constructor(server: Server | TlsServer, host: string, ca: Buffer | undefined) {
    this.#server = server;
    this.#ca = ca;
    const bound = server.address();
    this.address =
      typeof bound === 'object' && bound !== null ? formatHostPort(bound.address, bound.port) : host;
  }

  /** The new certificate holds for connections from now on. If `ca` is another one, those that are open are cut. */
  setTls(material: TlsMaterial): Result<undefined> {
    const server = this.#server;
    if (!('setSecureContext' in server)) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    server.setSecureContext(secureContextOptions(material));
    const { ca } = material;
    if (ca !== undefined && this.#ca?.equals(ca) !== true) server.closeAllConnections();
    this.#ca = ca;
    return ok(undefined);
  }

  /** Stops listening and cuts what is open: no answer of this listener takes long. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}
