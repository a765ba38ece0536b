import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  type IncomingHttpHeaders,
} from 'node:http2';
import { type Socket, connect as tcpConnect } from 'node:net';
import { ADS_SERVICE } from '../../../src/model/types.ts';
import type { Ending } from './xds-client.ts';

const adsPath = `/${ADS_SERVICE}/StreamAggregatedResources`;

export interface Credentials {
  readonly ca: string;
  readonly cert?: string;
  readonly key?: string;
}

/** A connection that does what no gRPC client would. */
export class RawConnection implements Disposable {
  readonly session: ClientHttp2Session;
  /** Resolves when it has ended, however. */
  readonly ended: Promise<void>;

  /** `from`: the address of its own end, of 127.0.0.0/8. */
  constructor(address: string, tls?: Credentials, from?: string) {
    const scheme = tls === undefined ? 'http' : 'https';
    // Megabytes that it may hold itself: what it sends waits here.
    this.session = connect(`${scheme}://${address}`, {
      maxSessionMemory: 1000,
      ...tls,
      ...(from === undefined ? {} : { localAddress: from }),
    });
    this.session.on('error', () => undefined);
    this.ended = new Promise((resolve) => this.session.once('close', () => resolve()));
  }

  /** The server speaks HTTP/2 with it; rejects if it has ended instead. */
  async ready(): Promise<this> {
    const refused = this.ended.then(() => Promise.reject(new Error('the connection has ended')));
    await Promise.race([once(this.session, 'remoteSettings'), refused]);
    refused.catch(() => undefined);
    return this;
  }

  /** A gRPC call that says nothing yet. */
  call(path: string = adsPath): RawStream {
    return new RawStream(
      this.session.request({
        ':method': 'POST',
        ':path': path,
        'content-type': 'application/grpc',
        te: 'trailers',
      }),
    );
  }

  [Symbol.dispose](): void {
    this.session.destroy();
  }
}

export class RawStream {
  readonly stream: ClientHttp2Stream;
  /** What the stream ended with, once it has; the code is NaN without a grpc-status. */
  status: Ending | undefined;
  readonly ends: Promise<Ending>;

  constructor(stream: ClientHttp2Stream) {
    this.stream = stream;
    let last: IncomingHttpHeaders = {};
    stream.on('response', (headers) => {
      if (headers['grpc-status'] !== undefined) last = headers;
    });
    stream.on('trailers', (headers: IncomingHttpHeaders) => {
      last = headers;
    });
    stream.on('error', () => undefined);
    this.ends = new Promise((resolve) => {
      stream.on('close', () => {
        const code = Number.parseInt(String(last['grpc-status']), 10);
        this.status = { code, details: String(last['grpc-message'] ?? `reset ${stream.rstCode}`) };
        resolve(this.status);
      });
    });
    stream.resume();
  }

  /** The beginning of a message of `length` bytes: so many of its zeros. */
  begin(length: number, sent: number): void {
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(length, 1);
    this.stream.write(Buffer.concat([prefix, Buffer.alloc(sent)]));
  }
}

/** TCP, and nothing more. */
export async function tcp(address: string): Promise<Socket> {
  const colon = address.lastIndexOf(':');
  const socket = tcpConnect(Number(address.slice(colon + 1)), address.slice(0, colon));
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}
