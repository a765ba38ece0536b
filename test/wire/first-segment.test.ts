import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { expect } from 'chai';
import { Accounts, boundlessAccounts } from '../../src/wire/accounts.ts';
import type { ListenerOptions } from '../../src/wire/client-connections.ts';
import { type HttpHandler, listenHttp } from '../../src/wire/http-server.ts';
import { listenGrpc } from '../../src/wire/http2-server.ts';
import type { Listener } from '../../src/wire/listener.ts';
import {
  block,
  callFields,
  data,
  Flag,
  headers,
  PREFACE,
  ping,
  settings,
  Type,
} from '../attacks/support/frames.ts';
import { RawConnection } from '../attacks/support/raw-connection.ts';
import { lastStream, resetsAtOnce } from '../attacks/support/reset-at-once.ts';
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
const common: ListenerOptions = { address: '127.0.0.1:0', maxRequestBytes: 1000 };
const PING = ping();
const found = { status: 200, type: 'text/plain', body: 'found' };
const read: HttpHandler = (_, answered) => {
  answered(found);
  return () => undefined;
};
const reported: string[] = [];

const kinds = {
  rest: (options: Partial<ListenerOptions>) =>
    listenHttp({
      ...common,
      ...options,
      report: (message) => reported.push(message),
      stalledTimeout: () => 60_000,
      route({ method, path }) {
        if (path === '/bug') throw new Error('a bug');
        return method === 'POST' ? read : found;
      },
    }),
  xds: (options: Partial<ListenerOptions>) => listenGrpc({ ...common, ...options, accept: () => undefined }),
};

describe('HTTP/2, all in the first segment', () => {
  let listener: Listener;
  let socket: Socket;

  afterEach(async () => {
    socket.destroy();
    await listener.drain(0);
  });

  async function say(
    kind: keyof typeof kinds,
    options: Partial<ListenerOptions>,
    ...bytes: readonly Buffer[]
  ): Promise<RawConnection> {
    const listening = await kinds[kind](options);
    if (!listening.ok) throw new Error(listening.error);
    listener = listening.value;
    const at = { host: '127.0.0.1', port: Number(listener.address.split(':').at(-1)) };
    const secure = { ...at, rejectUnauthorized: false, ALPNProtocols: ['h2'] };
    socket = options.tls === undefined ? connect(at) : connectTls(secure);
    socket.on('error', () => undefined);
    const connection = new RawConnection(socket);
    await connection.send(PREFACE, settings(), ...bytes);
    return connection;
  }

  for (const kind of ['rest', 'xds'] as const) {
    for (const options of [{}, { tls }]) {
      for (const [what, bytes] of resetsAtOnce) {
        it(`${kind}${'tls' in options ? ' over TLS' : ''}: ${what}, and its reset with every code`, async () => {
          const connection = await say(kind, options, bytes);
          await connection.until(() => connection.ended.has(lastStream), 'answer to the last request');
        });
      }

      it(`${kind}${'tls' in options ? ' over TLS' : ''}: one connection too many is told so, and the process lives on`, async () => {
        const connection = await say(kind, { ...options, bounds: full }, PING);
        await connection.until(() => connection.count(Type.GOAWAY) > 0, 'GOAWAY');
        await eventually(() => expect(listener.connections).to.equal(0));
      });
    }

    it(`${kind}: a connection that waits for its peer's turn while a drain begins ends with it`, async () => {
      const turns: (() => void)[] = [];
      const clock = new VirtualClock();
      const accounts = new Accounts(
        clock,
        () => ({ ...boundlessAccounts(clock).bounds, workPerSecond: 1 }),
        () => false,
        (run) => turns.push(run),
      );
      accounts.of({ address: '127.0.0.1', unix: false, uriSans: [], dnsSans: [] }).spent(10_000);
      await say(kind, { accounts, clock }, PING);
      await eventually(() => expect(listener.connections).to.equal(1));
      const drained = listener.drain(60_000);
      await eventually(() => {
        for (const run of turns.splice(0)) run();
        expect(listener.connections).to.equal(0);
      });
      await drained;
    });
  }

  const post = (path: string, ...more: readonly (readonly [string, string])[]): Buffer =>
    headers(1, block([...callFields(path), ...more]));

  it('rest: a client that waits for it is told to send its body', async () => {
    const connection = await say('rest', {}, post('/x', ['expect', '100-continue']));
    await connection.until(() => connection.count(Type.HEADERS) === 1, '100');
    expect(connection.ended.has(1)).to.equal(false);
    await connection.send(data(1, Buffer.from('x'), Flag.END_STREAM));
    await connection.until(() => connection.ended.has(1), 'answer');
    expect(connection.data(1).toString()).to.equal('found');
  });

  it('rest: a bug before the body is read is answered, and reported', async () => {
    const connection = await say('rest', {}, post('/bug'));
    await connection.until(() => connection.ended.has(1), 'answer');
    expect(connection.data(1).toString()).to.contain('this is a bug');
    expect(reported).to.deep.equal(['the handler of /bug failed']);
  });
});
