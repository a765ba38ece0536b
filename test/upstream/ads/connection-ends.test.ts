import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { expect } from 'chai';
import { resourceName } from '../../../src/model/brand.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { NO_PARAMETERS } from '../../../src/model/parameters.ts';
import { createLog } from '../../../src/observe/log.ts';
import { AdsUpstream } from '../../../src/upstream/ads/ads-upstream.ts';
import { logGrpc } from '../../../src/upstream/ads/grpc-channel.ts';
import { ControlPlane } from './control-plane.ts';
import { deltaResponse, parseItem, typeOf } from './responses.ts';

const cds = typeOf('cds');
const noError = 0;
const enhanceYourCalm = 11;

/** A control plane that answers the first request of each stream, and whose connections a test can end. */
class Plane {
  readonly #sessions: ServerHttp2Session[] = [];
  readonly #sockets: Socket[] = [];
  readonly #server: Http2Server;
  answered = 0;

  constructor() {
    this.#server = createServer((request, response) => {
      response.writeHead(200, { 'content-type': 'application/grpc' });
      request.once('data', () => {
        const message = deltaResponse(cds, '1', '1', [parseItem('a:1@1')]);
        const prefix = Buffer.alloc(5);
        prefix.writeUInt32BE(message.length, 1);
        response.write(Buffer.concat([prefix, message]));
      });
      // The second message is the ACK.
      request.on('data', () => void this.answered++);
      request.on('error', () => {});
    });
    this.#server.on('connection', (socket: Socket) => this.#sockets.push(socket));
    this.#server.on('session', (session) => {
      session.on('error', () => {});
      this.#sessions.push(session);
    });
  }

  listen(): Promise<number> {
    return new Promise((resolve) => {
      this.#server.listen(0, '127.0.0.1', () => {
        const bound: AddressInfo | string | null = this.#server.address();
        resolve(typeof bound === 'object' && bound !== null ? bound.port : 0);
      });
    });
  }

  goaway(code: number, data = ''): void {
    for (const session of this.#sessions) session.goaway(code, 0, Buffer.from(data));
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop(): void {
    for (const session of this.#sessions) session.destroy();
    this.#server.close();
  }
}

async function until(what: string, condition: () => boolean): Promise<void> {
  const end = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`waited in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('a connection of a control plane that ends', () => {
  let running: (() => unknown)[] = [];
  let lines: string[] = [];

  afterEach(async () => {
    for (const stop of running.toReversed()) await stop();
    running = [];
    lines = [];
  });

  function start(port: number): AdsUpstream {
    const upstream = new AdsUpstream(
      {
        name: 'test',
        claims: { authorities: [], types: [], names: [] },
        endpoints: [{ kind: 'tcp', host: '127.0.0.1', port }],
        protocol: 'DELTA',
        variants: 'NATIVE',
        tls: undefined,
        connectTimeoutMs: 5000,
        resourceTimeoutMs: 5000,
        keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
        backoff: { initialMs: 10, maxMs: 40 },
        failbackAfterMs: 1000,
        rules: [],
        node: { id: 'relay', cluster: '', metadata: {}, locality: { region: '', zone: '', subZone: '' } },
        version: '1',
        via: () => 'relay',
        maxConstraintDepth: 8,
        maxSessions: () => 10,
        clock: systemClock,
        random: Math.random,
        log: createLog({ format: 'text', write: (line) => lines.push(line) }),
        metrics: {
          accepted: () => {},
          rejected: () => {},
          reconnect: () => {},
          streamEnd: () => {},
          refused: () => {},
        },
      },
      { apply: () => {}, restamp: () => {}, changed: () => {} },
    );
    running.push(() => upstream.stop());
    upstream.subscribe({ type: cds, selector: resourceName('a'), parameters: NO_PARAMETERS });
    upstream.start();
    return upstream;
  }

  const warnings = (): readonly string[] => lines.filter((line) => line.includes(' WARN '));
  const ended = (): readonly string[] => lines.filter((line) => line.includes('the connection ended'));

  for (const [what, end, isWarned] of [
    ['GOAWAY without an error: info, and no error is shown', (plane) => plane.goaway(noError), false],
    ['GOAWAY with an error: a warning', (plane) => plane.goaway(enhanceYourCalm), true],
    ['a cut connection: a warning', (plane) => plane.cut(), true],
  ] as const satisfies readonly (readonly [string, (plane: Plane) => void, boolean])[]) {
    it(`${what}; another one is opened`, async () => {
      const plane = new Plane();
      running.push(() => plane.stop());
      const upstream = start(await plane.listen());
      await until('the first ACK', () => plane.answered >= 2);
      end(plane);
      await until('the second ACK', () => plane.answered >= 4);
      expect(upstream.state()).to.include({ connected: true, lastError: '' });
      expect([warnings().length > 0, ended().length > 0], lines.join('')).to.deep.equal([
        isWarned,
        !isWarned,
      ]);
    });
  }

  it('for too many pings: what the library says of it is in the log, and not on standard error', async () => {
    const said: string[] = [];
    const { error } = console;
    console.error = (text) => said.push(String(text));
    running.push(() => (console.error = error));
    logGrpc(createLog({ level: 'debug', write: (line) => lines.push(line) }));
    const plane = new Plane();
    running.push(() => plane.stop());
    start(await plane.listen());
    await until('the first ACK', () => plane.answered >= 2);
    plane.goaway(enhanceYourCalm, 'too_many_pings');
    await until('the second ACK', () => plane.answered >= 4);
    expect(said).to.deep.equal([]);
    expect(lines.find((line) => line.includes('excess pings'))).to.match(
      /"level":"debug".*"grpc-js: Connection to /,
    );
  });

  it('by its age, as grpc servers do it (MAX_CONNECTION_AGE): info', async () => {
    const plane = await new ControlPlane({
      'grpc.max_connection_age_ms': 300,
      'grpc.max_connection_age_grace_ms': 10_000,
    }).listen();
    running.push(() => plane.kill());
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(cds, '1', 'a:1@1');
    };
    start(plane.port);
    await until('a third stream', () => plane.streams.length >= 3);
    expect(warnings()).to.deep.equal([]);
    expect(ended()[0]).to.match(/ INFO .*endpoint=127\.0\.0\.1:\d+ /);
  });
});
