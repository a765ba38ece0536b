import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  type IncomingHttpHeaders,
} from 'node:http2';
import { createConnection, createServer, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls, createSecureContext } from 'node:tls';
import { expect } from 'chai';
import { Code } from '../../src/wire/grpc-status.ts';
import type { GrpcServer } from '../../src/wire/http2-server.ts';
import type { ServerStream } from '../../src/wire/server-stream.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { sharedSessions } from '../support/tls-clients.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

const authority = (name: string, issuer?: Issued): Issued =>
  issueCertificate({ name, authority: true, ...(issuer === undefined ? {} : { issuer }) });
const [oldRoot, newRoot] = [authority('old root'), authority('new root')];
const middle = authority('middle', newRoot);
const relay = issueCertificate({ name: 'relay', issuer: newRoot, dns: ['localhost'] });
const time = 1000;

function material(...authorities: readonly Issued[]) {
  return {
    certificate: Buffer.from(relay.certificate),
    privateKey: Buffer.from(relay.privateKey),
    ca: Buffer.from(authorities.map(({ certificate }) => certificate).join('')),
  };
}

/** A connection with one open call. */
class Client {
  readonly session: ClientHttp2Session;
  readonly call: ClientHttp2Stream;
  readonly answered: Promise<unknown>;
  /** The grpc-status; -1: it was cut. */
  readonly ended: Promise<number>;
  goneAway = false;
  resumed = false;
  readonly ticket: Promise<Buffer>;

  constructor(
    port: number,
    own: Issued | undefined,
    { chain = [], ...more }: { chain?: readonly Issued[] } & ConnectionOptions = {},
  ) {
    const identity = own && {
      cert: [own, ...chain].map(({ certificate }) => certificate).join(''),
      key: own.privateKey,
    };
    const options = {
      port,
      servername: 'localhost',
      ALPNProtocols: ['h2'],
      ca: newRoot.certificate,
      ...identity,
      ...more,
    };
    const socket = connectTls(options, () => {
      this.resumed = socket.isSessionReused();
    });
    this.ticket = new Promise((resolve) => {
      socket.once('session', resolve);
    });
    this.session = connectHttp2('https://localhost', { createConnection: () => socket });
    this.session.on('error', () => undefined);
    this.session.on('goaway', () => {
      this.goneAway = true;
    });
    this.call = this.session.request({
      ':method': 'POST',
      ':path': '/a.B/C',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    this.call.on('error', () => undefined).resume();
    this.answered = new Promise((resolve) => this.call.once('response', resolve));
    this.ended = new Promise((resolve) => {
      this.call.on('trailers', (trailers: IncomingHttpHeaders) => resolve(Number(trailers['grpc-status'])));
      this.call.on('close', () => resolve(-1));
    });
  }
}

describe('when ca loses an authority', () => {
  const clock = new VirtualClock();
  const clients: Client[] = [];
  let server: GrpcServer;
  let port: number;
  let reviews: number[];

  async function start(requireClientCertificate = true): Promise<void> {
    reviews = [];
    server = await serve({
      clock,
      accept: () => open,
      tls: {
        ...material(oldRoot, newRoot),
        requireClientCertificate,
        sessions: sharedSessions(clock.now()),
      },
      reviewTime: () => time,
      reviewed: (ended) => reviews.push(ended),
    });
    port = Number(server.address.split(':')[1]);
  }
  const client = (own: Issued | undefined, more = {}): Client => {
    const made = new Client(port, own, more);
    clients.push(made);
    return made;
  };
  const workload = (issuer: Issued): Issued =>
    issueCertificate({ name: 'workload', issuer, uris: ['spiffe://example.com/a'] });

  afterEach(async () => {
    for (const { session } of clients.splice(0)) session.destroy();
    await closeServers();
  });

  it('its connections end over the time, by GOAWAY and UNAVAILABLE; the others stay', async () => {
    await start(false);
    const gone = Array.from({ length: 20 }, () => client(workload(oldRoot)));
    const stay = [
      client(workload(newRoot)),
      client(workload(middle), { chain: [middle] }),
      client(undefined),
      client(workload(authority('stranger'))),
    ];
    await Promise.all([...gone, ...stay].map(({ answered }) => answered));
    server.setTls(material(newRoot));
    const over: Client[] = [];
    for (const one of gone) void one.ended.then(() => over.push(one));
    clock.advance(time / 2);
    // At the most four of the first 14 stay.
    await eventually(() => expect(over.length).to.be.within(10, 14));
    clock.advance(time / 2);
    expect(reviews).to.deep.equal([gone.length]);
    expect(await Promise.all(gone.map(({ ended }) => ended))).to.deep.equal(gone.map(() => Code.UNAVAILABLE));
    expect(gone.map(({ goneAway }) => goneAway)).to.not.include(false);
    clock.advance(60_000);
    expect(stay.map(({ session }) => session.closed)).to.not.include(true);
  });

  it('nobody is looked at when one is added, or the certificate changes', async () => {
    await start();
    await client(workload(oldRoot)).answered;
    server.setTls(material(newRoot, oldRoot, authority('third')));
    clock.advance(time);
    expect(reviews).to.deep.equal([]);
    expect(server.streams).to.equal(1);
  });

  it('a client that resumed its session, and so did not show its intermediates, stays', async () => {
    await start();
    const chain = [middle];
    const own = workload(middle);
    const session = await client(own, { chain }).ticket;
    const resumed = client(own, { chain, session });
    await resumed.answered;
    expect(resumed.resumed).to.equal(true);
    server.setTls(material(newRoot));
    clock.advance(time);
    expect(reviews).to.deep.equal([0]);
    expect(server.streams).to.equal(2);
  });

  it('no client shows another certificate, or none, on the connection that it has', async () => {
    await start();
    const { certificate: cert, privateKey: key } = workload(oldRoot);
    const ALPNProtocols = ['h2'];
    const ca = newRoot.certificate;
    const socket = connectTls({ port, ALPNProtocols, ca, cert, key, maxVersion: 'TLSv1.2' });
    const end = await new Promise((resolve) => {
      socket.once('error', ({ message }) => resolve(message));
      socket.once('close', () => resolve('it was cut'));
      socket.once('secureConnect', () => {
        const next = workload(newRoot);
        socket.setKeyCert(createSecureContext({ cert: next.certificate, key: next.privateKey }));
        socket.renegotiate({}, () => resolve('it did'));
        socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
      });
    });
    socket.destroy();
    expect(end).to.contain('no renegotiation');
  });

  it('a TLS session of before does not bring a client back', async () => {
    await start();
    const own = workload(oldRoot);
    const session = await client(own).ticket;
    server.setTls(material(newRoot));
    expect(await client(own, { session }).ended).to.equal(-1);
    clock.advance(time);
    await eventually(() => expect(server.streams).to.equal(0));
  });

  it('a handshake that began before and ends after is not believed', async () => {
    await start();
    const delayed = await delay(port);
    const late = client(workload(oldRoot), { port: delayed.port });
    const inTime = client(workload(newRoot), { port: delayed.port });
    await delayed.holds(2);
    server.setTls(material(newRoot));
    clock.advance(time);
    delayed.release();
    await inTime.answered;
    expect(await late.ended).to.equal(-1);
    expect(server.streams).to.equal(1);
    delayed.close();
  });
});

function open(stream: ServerStream): void {
  stream.handle({
    message: () => undefined,
    ended: () => undefined,
    drained: () => undefined,
    closed: () => undefined,
  });
  stream.write(Buffer.alloc(5));
}

/** A way to a port that holds back what clients say after their first words, until it is released. */
async function delay(port: number) {
  const held: (() => void)[] = [];
  const sockets: Socket[] = [];
  let wake = (): void => undefined;
  const proxy = createServer((inner) => {
    const outer = createConnection(port);
    sockets.push(inner, outer);
    for (const socket of [inner, outer]) socket.on('error', () => undefined);
    outer.pipe(inner);
    inner.once('data', (hello) => {
      outer.write(hello);
      inner.pause();
      inner.once('readable', () => {
        held.push(() => inner.pipe(outer));
        wake();
      });
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const bound = proxy.address();
  return {
    port: typeof bound === 'object' && bound !== null ? bound.port : 0,
    async holds(count: number) {
      while (held.length < count) await new Promise<void>((resolve) => (wake = resolve));
    },
    release: () => held.forEach((go) => go()),
    close() {
      for (const socket of sockets) socket.destroy();
      proxy.close();
    },
  };
}
