import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { systemClock } from '../../src/model/clock.ts';
import { askCheck, type CheckAnswer, type CheckSettings, Checks } from '../../src/releases/checks.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

const json =
  (body: unknown, status = 200): Handler =>
  (_, response) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
const vector = (...values: readonly string[]): Handler =>
  json({
    status: 'success',
    data: { resultType: 'vector', result: values.map((value) => ({ metric: {}, value: [1, value] })) },
  });
const scalar = (value: string): Handler =>
  json({ status: 'success', data: { resultType: 'scalar', result: [1, value] } });
const status =
  (code: number, headers: Readonly<Record<string, string>> = {}): Handler =>
  (_, response) =>
    response.writeHead(code, headers).end();

const common = { name: 'one', intervalMs: 20, timeoutMs: 300, failures: 2 };

describe('checks of a rollout', function () {
  this.timeout(20_000);

  let server: Server;
  let url = '';
  let handler: Handler = status(200);
  let asked: { readonly path: string; readonly authorization: string | undefined }[] = [];

  before(async () => {
    server = createServer((request, response) => {
      asked.push({ path: request.url ?? '', authorization: request.headers.authorization });
      handler(request, response);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    url = `http://127.0.0.1:${port}`;
  });

  beforeEach(() => {
    asked = [];
  });

  after(() => {
    server.closeAllConnections();
    server.close();
  });

  const ask = (settings: Partial<CheckSettings>) =>
    askCheck({ ...common, ...settings }, { clock: systemClock, subject: () => ({ wave: 1 }) });

  const answers: readonly (readonly [what: string, handler: Handler, state: string])[] = [
    ['one sample within the bounds', vector('0.5'), 'GOOD'],
    ['one sample above max', vector('1.5'), 'BAD'],
    ['one sample below min', vector('-1'), 'BAD'],
    ['a scalar within the bounds', scalar('1'), 'GOOD'],
    ['a scalar that is infinite', scalar('+Inf'), 'BAD'],
    ['NaN', vector('NaN'), 'UNKNOWN'],
    ['no sample', vector(), 'UNKNOWN'],
    ['two samples', vector('0', '0'), 'UNKNOWN'],
    ['a text that is no number', scalar('0x1'), 'UNKNOWN'],
    ['an error of the query', json({ status: 'error', error: 'parse error' }, 400), 'UNKNOWN'],
    ['another answer', json({ hello: 'world' }), 'UNKNOWN'],
    ['no JSON', (_, response) => response.end('<html>'), 'UNKNOWN'],
    ['a redirect', status(302, { location: '/elsewhere' }), 'UNKNOWN'],
    ['no answer in time', () => {}, 'UNKNOWN'],
    ['a body that does not end', (_, response) => response.writeHead(200).write('{'), 'UNKNOWN'],
    ['a body that is too large', (_, response) => response.end('x'.repeat(2_000_000)), 'UNKNOWN'],
    ['a connection that ends', (request) => request.socket.destroy(), 'UNKNOWN'],
  ];
  for (const [what, given, state] of answers) {
    it(`Prometheus, ${what}: ${state}`, async () => {
      handler = given;
      const said = await ask({ prometheus: { url: `${url}/base/`, query: 'up', min: 0, max: 1 } });
      expect(said.state, said.reason).to.equal(state);
      expect(asked.map(({ path }) => path)).to.deep.equal(['/base/api/v1/query?query=up']);
    });
  }

  const codes = [
    [200, 'GOOD'],
    [204, 'GOOD'],
    [302, 'UNKNOWN'],
    [404, 'BAD'],
    [503, 'BAD'],
  ] as const;
  for (const [code, state] of codes) {
    it(`a webhook, ${code}: ${state}`, async () => {
      handler = status(code, { location: '/elsewhere' });
      const said = await ask({ webhook: { url: `${url}/hook` } });
      expect(said.state).to.equal(state);
      expect(asked.map(({ path }) => path)).to.deep.equal(['/hook']);
    });
  }

  it('a token is sent, read for each request, and never shown', async () => {
    using directory = temporaryDirectory();
    const tokenFile = join(directory.path, 'token');
    const repeated: readonly Handler[] = [
      (request, response) => json({ error: `no ${request.headers.authorization}` }, 400)(request, response),
      (request, response) => vector(`${request.headers.authorization}`)(request, response),
      // Some writers of JSON escape what need not be.
      (request, response) =>
        response
          .writeHead(400)
          .end(`{"error":"no ${request.headers.authorization?.replaceAll('/', '\\/')}"}`),
    ];
    // One of a Kubernetes service account has a thousand characters, and reasons are cut.
    for (const token of ['first-secret', 'second/secret', 'secret/'.repeat(150)]) {
      writeFileSync(tokenFile, token);
      for (const given of repeated) {
        handler = given;
        const said = await ask({ prometheus: { url, query: 'up', max: 1, tokenFile } });
        expect(asked.at(-1)?.authorization).to.equal(`Bearer ${token}`);
        expect(said.reason).to.include('[redacted]').and.to.not.include('secret');
      }
    }
  });

  for (const hours of [-1, 1])
    it(`a wall clock that is set by ${hours} h: what was asked since the wave began counts, and nothing else`, () => {
      const clock = new VirtualClock();
      let state: CheckAnswer['state'] = 'GOOD';
      const checks = new Checks([{ ...common, intervalMs: 1000, webhook: { url } }], {
        clock,
        subject: () => ({}),
        changed: () => {},
        ask: (_, answered) => answered({ state, value: undefined, reason: '' }),
      });
      checks.waiting(true);
      clock.advance(5000);
      clock.step(hours * 3_600_000);
      const since = clock.monotonic() + 500;
      expect(checks.opinionOn(new Set(), since).waitsFor).to.equal('check one has not answered yet');
      clock.advance(1000);
      expect(checks.opinionOn(new Set(), since).goodSince).to.equal(since);
      state = 'BAD';
      clock.advance(1000);
      expect(checks.opinionOn(new Set(), since).verdict).to.equal(undefined);
      clock.advance(1000);
      expect(checks.opinionOn(new Set(), since).verdict?.cause).to.equal('check');
      const [shown] = checks.states();
      expect(clock.now() - (shown?.since ?? 0)).to.be.within(1000, 2000);
      expect(clock.now() - (shown?.recent.at(-1)?.askedAt ?? 0)).to.be.below(1000);
    });

  it('BAD so many times in a row since the change is bad; UNKNOWN is not', async () => {
    const checks = new Checks([{ ...common, webhook: { url } }], {
      clock: systemClock,
      subject: () => ({}),
      changed: () => {},
    });
    handler = status(302);
    const since = systemClock.monotonic();
    checks.waiting(true);
    await eventually(() => expect(asked.length).to.be.above(3));
    const opinion = (from = since) => checks.opinionOn(new Set(), from);
    const waitsFor = 'check one is UNKNOWN: it answered 302: redirects are not followed';
    expect(opinion()).to.deep.equal({ verdict: undefined, goodSince: undefined, waitsFor });
    handler = status(200);
    await eventually(() => expect(opinion().goodSince).to.be.at.least(since));
    handler = status(500);
    await eventually(() => expect(opinion().verdict?.reason).to.match(/^check one:/));
    expect(opinion(systemClock.monotonic() + 1000).verdict).to.equal(undefined);
    checks.waiting(false);
    const count = asked.length;
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(asked.length).to.be.at.most(count + 1);
  });
});
