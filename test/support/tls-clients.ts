import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { type ConnectionOptions, connect } from 'node:tls';
import { hourOf, TlsSessions } from '../../src/wire/tls-sessions.ts';
import type { Issued } from './certificates.ts';

export const tlsVersions = ['TLSv1.2', 'TLSv1.3'] as const;
export type TlsVersion = (typeof tlsVersions)[number];

/** Sessions of a listener with keys of the hour, which other processes have too. */
export function sharedSessions(now = Date.now(), listener: 'xds' | 'rest' = 'xds'): TlsSessions {
  const sessions = new TlsSessions(listener);
  sessions.keys.renew(hourOf(now));
  return sessions;
}

export interface TlsClientOptions {
  readonly ca: Issued;
  readonly own?: Issued | undefined;
  /** Shown with `own`. */
  readonly chain?: readonly Issued[];
  readonly version: TlsVersion;
  readonly session?: Buffer | undefined;
  /** Its address: another one is another client to the relay. */
  readonly from?: string;
}

export interface Visit {
  /** Of the newest ticket; undefined: there was none. */
  readonly session: Buffer | undefined;
  readonly resumed: boolean;
  /** HTTP/2 was answered. False: the connection was closed. */
  readonly served: boolean;
}

/** Connects, asks one question, and takes the tickets that come before the answer. */
export async function visit(
  address: string,
  { ca, own, chain = [], version, session, from }: TlsClientOptions,
): Promise<Visit> {
  const options: ConnectionOptions = {
    port: Number(address.slice(address.lastIndexOf(':') + 1)),
    host: '127.0.0.1',
    servername: 'localhost',
    ALPNProtocols: ['h2'],
    ca: ca.certificate,
    minVersion: version,
    maxVersion: version,
    ...(own && {
      cert: [own, ...chain].map(({ certificate }) => certificate).join(''),
      key: own.privateKey,
    }),
    ...(session && { session }),
    ...(from !== undefined && { localAddress: from }),
  };
  const socket = connect(options);
  let [last, resumed, connected]: [Buffer | undefined, boolean, boolean] = [undefined, false, false];
  socket.on('session', (ticket) => {
    last = ticket;
  });
  socket.on('secureConnect', () => {
    connected = true;
    resumed = socket.isSessionReused();
  });
  const http2 = connectHttp2('https://localhost', { createConnection: () => socket });
  http2.on('error', () => undefined);
  const served = await answered(http2);
  http2.destroy();
  if (!connected && served) throw new Error('an answer without a connection');
  return { session: last, resumed, served };
}

function answered(http2: ClientHttp2Session): Promise<boolean> {
  const request = http2.request({
    ':method': 'POST',
    ':path': '/a.B/C',
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  request.on('error', () => undefined).end();
  return new Promise((resolve) => {
    request.once('response', () => resolve(true));
    request.once('close', () => resolve(false));
    http2.once('close', () => resolve(false));
  });
}
