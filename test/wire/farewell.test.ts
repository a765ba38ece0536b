import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { expect } from 'chai';
import type { ListenerOptions } from '../../src/wire/client-connections.ts';
import { listenHttp } from '../../src/wire/http-server.ts';
import { listenGrpc } from '../../src/wire/http2-server.ts';
import type { Listener } from '../../src/wire/listener.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { issueCertificate } from '../support/certificates.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { full } from './serve.ts';

const own = issueCertificate({ name: 'server', dns: ['localhost'] });
const tls = {
  certificate: Buffer.from(own.certificate),
  privateKey: Buffer.from(own.privateKey),
  requireClientCertificate: false,
};
const request = 'GET / HTTP/1.1\r\nhost: x\r\n\r\n';
const clock = new VirtualClock();
const common: ListenerOptions = { address: '127.0.0.1:0', maxRequestBytes: 1000, clock };

const xds = (options: Partial<ListenerOptions>) =>
  listenGrpc({ ...common, ...options, accept: () => undefined });
const rest = (options: Partial<ListenerOptions>) =>
  listenHttp({
    ...common,
    ...options,
    stalledTimeout: () => 60_000,
    route: () => ({ status: 200, type: 'text/plain', body: '' }),
  });

/** Who is refused with an answer, and how that answer begins. */
const cases = [
  { name: 'xds over TLS without ALPN', serve: () => xds({ tls }), secure: {}, answer: 'HTTP/1.1 403' },
  { name: 'rest, one connection too many', serve: () => rest({ bounds: full }), answer: 'HTTP/1.1 429' },
  {
    name: 'rest over TLS, one connection too many',
    serve: () => rest({ tls, bounds: full }),
    secure: { ALPNProtocols: ['http/1.1'] },
    answer: 'HTTP/1.1 429',
  },
  { name: 'rest, what is no HTTP', serve: () => rest({}), sent: 'x\r\n\r\n', answer: 'HTTP/1.1 400' },
];

interface Client {
  readonly tcp: Socket;
  /** TLS on it, or itself. */
  readonly socket: Socket;
}

async function dial(address: string, secure: ConnectionOptions | undefined): Promise<Client> {
  const tcp = connect({ host: '127.0.0.1', port: Number(address.split(':').at(-1)), allowHalfOpen: true });
  await once(tcp, 'connect');
  const socket =
    secure === undefined ? tcp : connectTls({ socket: tcp, rejectUnauthorized: false, ...secure });
  for (const each of [tcp, socket]) each.on('error', () => undefined);
  return { tcp, socket };
}

describe('a connection that is refused with an answer', () => {
  let listener: Listener;

  afterEach(() => listener.drain(0));

  for (const { name, serve, secure, answer, sent = request } of cases) {
    async function refused(): Promise<Client> {
      const listening = await serve();
      if (!listening.ok) throw new Error(listening.error);
      listener = listening.value;
      const client = await dial(listener.address, secure);
      client.socket.write(sent);
      const said: unknown[] = await once(client.socket, 'data');
      expect(String(said[0])).to.contain(answer);
      return client;
    }

    it(`${name}: it may be reset, and the process lives on`, async () => {
      const { tcp } = await refused();
      tcp.resetAndDestroy();
      await eventually(() => expect(listener.connections).to.equal(0));
    });

    it(`${name}: it is over when its client has said all`, async () => {
      const { socket } = await refused();
      socket.end();
      await eventually(() => expect(listener.connections).to.equal(0));
    });

    it(`${name}: it is cut when its client stays`, async () => {
      const { socket } = await refused();
      expect(listener.connections).to.equal(1);
      clock.advance(1000);
      await eventually(() => expect(listener.connections).to.equal(0));
      socket.destroy();
    });
  }
});
