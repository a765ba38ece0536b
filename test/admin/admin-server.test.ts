import { once } from 'node:events';
import { request } from 'node:http';
import { get as httpsGet } from 'node:https';
import { createConnection } from 'node:net';
import { create, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { startAdminServer } from '../../src/admin/admin-server.ts';
import type { HttpListener } from '../../src/admin/http-listener.ts';
import { clientsQuery } from '../../src/admin/requests.ts';
import type { Inspector } from '../../src/admin/service.ts';
import { ListClientsRequestSchema } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  ClientConfig_GenericXdsConfigSchema,
  ClientStatusResponseSchema,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { ok } from '../../src/model/result.ts';
import { typeByName } from '../../src/model/types.ts';
import { createLog } from '../../src/observe/log.ts';
import { issueCertificate } from '../support/certificates.ts';
import { OPEN as access, fakeInspector } from '../support/inspector.ts';

const lines: string[] = [];
const log = createLog({ write: (line) => lines.push(line) });
let server: HttpListener | undefined;

async function start(changes: Partial<Inspector> = {}) {
  const inspector = fakeInspector(changes);
  const started = await startAdminServer({
    host: '127.0.0.1',
    port: 0,
    tls: undefined,
    access,
    inspector,
    log,
  });
  if (!started.ok) throw new Error(started.error);
  server = started.value;
  return { inspector, url: `http://${server.address}` };
}

async function rpc(url: string, path: string, body: unknown) {
  const response = await fetch(`${url}/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

const admin = (method: string) => `distributary.admin.v1.AdminService/${method}`;
const csds = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';

const everyClient = clientsQuery(create(ListClientsRequestSchema));

describe('admin listener', () => {
  beforeEach(() => lines.splice(0));
  afterEach(async () => server?.close());

  it('GET /events sends the state of the page, and not to a page of another origin', async () => {
    const { url } = await start();
    const stopped = new AbortController();
    const response = await fetch(`${url}/events`, { signal: stopped.signal });
    expect(response.headers.get('content-type')).to.equal('text/event-stream');
    const reader = response.body?.getReader();
    const value: unknown = (await reader?.read())?.value;
    expect(Buffer.from(value as Uint8Array).toString()).to.match(
      /^event: model\ndata: \{"relay":\{"nodeId":"relay-eu-1"/,
    );
    stopped.abort();
    const foreign = await fetch(`${url}/events`, { headers: { origin: 'https://evil.example' } });
    expect(foreign.status).to.equal(403);
    const posted = await fetch(`${url}/events`, { method: 'POST' });
    expect(posted.status).to.equal(405);
  });

  it('GET /runbooks/NAME answers with the runbooks that the page links to, and no other file', async () => {
    const { url } = await start();
    expect(await (await fetch(`${url}/runbooks/limits`)).text()).to.match(/^# /);
    for (const path of ['/runbooks/README', '/runbooks/..%2f..%2fpackage.json', '/runbooks/'])
      expect((await fetch(`${url}${path}`)).status, path).to.equal(404);
  });

  it('GET /healthz answers 200', async () => {
    const { url } = await start();
    expect((await fetch(`${url}/healthz`)).status).to.equal(200);
  });

  it('GET /ready answers 200 with the upstreams, stale or not', async () => {
    const { url } = await start();
    const response = await fetch(`${url}/ready`);
    expect(response.status).to.equal(200);
    expect(await response.json()).to.deep.equal({
      ready: true,
      reason: 'stale: second (connection refused)',
      problems: [
        {
          kind: 'upstream_away',
          title: 'an upstream is not connected',
          severity: 'critical',
          since: '2026-01-01T00:00:00Z',
          upstream: 'second',
          runbook: 'docs/runbooks/control-plane-away.md',
        },
        {
          kind: 'removals_held',
          title: 'an upstream has removed too much at once',
          severity: 'critical',
          since: '2026-01-01T00:00:00Z',
          upstream: 'second',
          runbook: 'docs/runbooks/removals-held.md',
        },
        {
          kind: 'clients_reject',
          title: 'clients reject a resource, all for the same reason',
          severity: 'critical',
          since: '2026-01-01T00:00:00Z',
          clients: 2,
          runbook: 'docs/runbooks/clients-reject.md',
        },
        {
          kind: 'ambiguous',
          title: 'several variants match the same parameters',
          severity: 'warning',
          since: null,
          runbook: 'docs/runbooks/ambiguous-variants.md',
        },
        {
          kind: 'configuration_dangerous',
          title: 'the configuration is accepted, with a warning',
          severity: 'warning',
          since: null,
          runbook: 'docs/runbooks/configuration-dangerous.md',
        },
      ],
      upstreams: [
        { name: 'central', connected: true, stale: false, since: null },
        {
          name: 'second',
          connected: false,
          stale: true,
          since: '2026-01-01T00:00:00.000Z',
          reason: 'connection refused',
          from_siblings_since: '2026-01-01T00:00:01.000Z',
          last_error: 'connection refused',
          refused_streams: 2,
          suspect_types: ['debug'],
        },
      ],
    });
  });

  it('GET /ready answers 503 with the reason while not ready', async () => {
    const { url } = await start({
      ready: () => ({
        ready: false,
        rollout: undefined,
        reason: 'draining',
        upstreams: [],
      }),
      problems: () => [],
    });
    const response = await fetch(`${url}/ready`);
    expect(response.status).to.equal(503);
    expect(await response.json()).to.deep.equal({
      ready: false,
      reason: 'draining',
      problems: [],
      upstreams: [],
    });
  });

  it('GET /ready has nothing that a terminal obeys, whatever a control plane has said', async () => {
    const reason = 'stale: \u009b2J\u202efdp.exe\u2028';
    const { url } = await start({
      ready: () => ({ ready: false, rollout: undefined, reason, upstreams: [] }),
      problems: () => [],
    });
    const ready = await (await fetch(`${url}/ready`)).text();
    expect(ready)
      .to.match(/^[\n -~]*$/)
      .and.to.include('\\u202e');
  });

  it('GET /metrics answers the Prometheus text', async () => {
    const { url } = await start();
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get('content-type')).to.match(/^text\/plain; version=0\.0\.4/);
    expect(await response.text()).to.equal('distributary_cache_bytes 1\n');
  });

  it('GET /config_dump answers the configuration', async () => {
    const { url } = await start();
    expect(await (await fetch(`${url}/config_dump`)).json()).to.deep.equal({ node: { id: 'relay-1' } });
  });

  it('answers HEAD with the headers of GET, and ignores a query', async () => {
    const { url } = await start();
    const response = await fetch(`${url}/healthz?a=b`, { method: 'HEAD' });
    expect(response.status).to.equal(200);
    expect(response.headers.get('content-length')).to.equal('3');
    expect(await response.text()).to.equal('');
  });

  it('says what there is where there is nothing: 404', async () => {
    const { url } = await start();
    for (const path of ['/nothing', '/__proto__', '/healthz/', '/v2/discovery:clusters']) {
      const response = await fetch(url + path);
      expect(response.status).to.equal(404);
      const body = (await response.json()) as { code: string; message: string };
      expect(body.code).to.equal('not_found');
      expect(body.message)
        .to.include('GET /ready')
        .and.to.include(`POST /${admin('Explain')}`);
    }
  });

  it('says which method is taken: 405', async () => {
    const { url } = await start();
    const post = await fetch(`${url}/metrics`, { method: 'POST', body: 'x' });
    expect([post.status, post.headers.get('allow')]).to.deep.equal([405, 'GET, HEAD']);
    const get = await fetch(`${url}/${admin('Status')}`);
    expect([get.status, get.headers.get('allow')]).to.deep.equal([405, 'POST']);
  });

  it('says which content types an RPC takes: 415', async () => {
    const { url } = await start();
    const headers = { 'content-type': 'text/plain' };
    const response = await fetch(`${url}/${admin('Status')}`, { method: 'POST', headers, body: '{}' });
    expect(response.status).to.equal(415);
    expect(await response.json()).to.deep.include({ code: 'unimplemented' });
    expect((await rpc(url, admin('Status'), {})).status).to.equal(200);
    // Tap is a stream.
    const unary = await rpc(url, admin('Tap'), {});
    expect([unary.status, unary.body['message']]).to.deep.equal([
      415,
      'content-type: expected application/connect+json or application/connect+proto, got "application/json"',
    ]);
    const compressed = { 'content-type': 'application/json', 'content-encoding': 'br' };
    const refused = await fetch(`${url}/${admin('Status')}`, {
      method: 'POST',
      headers: compressed,
      body: 'x',
    });
    expect([refused.status, ((await refused.json()) as Record<string, unknown>)['message']]).to.deep.equal([
      415,
      'content-encoding br is not supported here: send requests uncompressed',
    ]);
  });

  it('Status answers every field, numbers as numbers', async () => {
    const { url } = await start();
    const { status, body } = await rpc(url, admin('Status'), {});
    expect(status).to.equal(200);
    expect(body).to.include({ version: '1.2.3', ready: true, reason: '', clients: 4 });
    expect(body['upstreams']).to.have.length(2);
  });

  it('Explain answers {match, variants[{constraints, version, bytes, matches, reason}]}', async () => {
    const { url, inspector } = await start();
    const { body } = await rpc(url, admin('Explain'), {
      type: 'cds',
      name: 'web',
      parameters: { env: 'test', constructor: 'x' },
    });
    expect(body['match']).to.equal('');
    expect((body['variants'] as object[])[0]).to.include({
      constraints: 'env == "prod"',
      version: '7',
      bytes: 120,
      matches: false,
      reason: 'env == "prod" fails: env is not given',
    });
    const [query] = inspector.calls.explain;
    expect(query?.type).to.equal('type.googleapis.com/envoy.config.cluster.v3.Cluster');
    expect([...(query?.parameters?.entries ?? [])]).to.deep.equal([
      ['constructor', 'x'],
      ['env', 'test'],
    ]);
  });

  it('Explain takes a key such as __proto__ for a key', async () => {
    const { url, inspector } = await start();
    await rpc(url, admin('Explain'), '{"type":"cds","name":"web","parameters":{"__proto__":"x"}}');
    expect([...(inspector.calls.explain[0]?.parameters?.entries ?? [])]).to.deep.equal([['__proto__', 'x']]);
  });

  it("Explain uses the client's parameters where none are given", async () => {
    const { url, inspector } = await start();
    const { body } = await rpc(url, admin('Explain'), { type: 'cds', name: 'web', client: '17' });
    expect(inspector.calls.explain[0]).to.include({ client: '17', parameters: undefined });
    expect(body['match']).to.equal('env == "prod"');
    expect(body['client']).to.include({ state: 'ERROR', last_nack: 'bad' });
  });

  it('bytes that are no request are INVALID_ARGUMENT, as JSON that is none', async () => {
    const { url } = await start();
    for (const [type, body] of [
      ['application/proto', Buffer.from([0x0a, 0x7f, 1])],
      ['application/json', '{"type":'],
    ] as const) {
      const answer = await fetch(`${url}/${admin('Explain')}`, {
        method: 'POST',
        headers: { 'content-type': type },
        body,
      });
      expect(answer.status, type).to.equal(400);
      expect(await answer.json()).to.have.property('code', 'invalid_argument');
    }
  });

  it('Explain refuses what it cannot take, and says what it can', async () => {
    const { url } = await start();
    const unknown = await rpc(url, admin('Explain'), { type: 'xyz', name: 'web' });
    expect([unknown.status, unknown.body['code']]).to.deep.equal([400, 'invalid_argument']);
    expect(unknown.body['message']).to.match(/unknown type "xyz": expected cds, .* or a type URL/);
    const nameless = await rpc(url, admin('Explain'), { type: 'cds' });
    expect(nameless.body['message']).to.equal('name is missing');
    const nobody = await rpc(url, admin('Explain'), { type: 'cds', name: 'web', client: 'nobody' });
    expect([nobody.status, nobody.body['code']]).to.deep.equal([404, 'not_found']);
    const garbage = await rpc(url, admin('Explain'), '{"type":');
    expect(garbage.status).to.equal(400);
  });

  it('ListResources bounds a page and takes short names', async () => {
    const { url, inspector } = await start();
    await rpc(url, admin('ListResources'), { type: 'cds', pageSize: 5000 });
    await rpc(url, admin('ListResources'), { namePrefix: 'w', pageSize: 3 });
    expect(inspector.calls.resources.map(({ pageSize, namePrefix }) => [pageSize, namePrefix])).to.deep.equal(
      [
        [1000, ''],
        [3, 'w'],
      ],
    );
    expect(inspector.calls.resources[1]?.type).to.be.undefined;
  });

  it('ListClients answers {clients[{id, node, peer, transport, types[{type, version, state, last_nack}]}]}', async () => {
    const { url, inspector } = await start();
    const { body } = await rpc(url, admin('ListClients'), {});
    const [client] = body['clients'] as Record<string, unknown>[];
    expect(client).to.include({ id: '17', peer: '127.0.0.1:4000', transport: 'delta' });
    expect(client?.['node']).to.deep.equal({ id: 'envoy-1', cluster: 'web' });
    expect((client?.['types'] as object[] | undefined)?.[0]).to.include({
      type: 'cds',
      version: 'v1',
      state: 'ERROR',
      last_nack: 'bad',
    });
    expect(inspector.calls.clients).to.deep.equal([everyClient]);
    await rpc(url, admin('ListClients'), { limit: 3, node: 'web-*', type: 'cds', state: 'ERROR' });
    const query = { ...everyClient, limit: 3, node: 'web-*', type: typeByName('cds'), state: 'ERROR' };
    expect(inspector.calls.clients[1]).to.deep.equal(query);
    const wrong = await rpc(url, admin('ListClients'), { state: 'error' });
    expect(wrong.body['message']).to.equal('unknown state "error": did you mean "ERROR"?');
  });

  it('ReleaseRemovals names an upstream, and a type or none; an upstream that is not there is NOT_FOUND', async () => {
    const { url, inspector } = await start();
    const { body } = await rpc(url, admin('ReleaseRemovals'), { upstream: 'central', type: 'cds' });
    expect(body).to.deep.equal({ removed: 7 });
    expect((await rpc(url, admin('ReleaseRemovals'), { upstream: 'nobody' })).status).to.equal(404);
    expect((await rpc(url, admin('ReleaseRemovals'), { upstream: 'central', type: 'xyz' })).status).to.equal(
      400,
    );
    expect(inspector.calls.released).to.deep.equal([
      ['central', typeByName('cds')],
      ['nobody', undefined],
    ]);
  });

  it('FetchClientStatus answers JSON, resources included, an unknown type as base64 with the reason', async () => {
    const entry = (name: string, typeUrl: string, value: Uint8Array) =>
      create(ClientConfig_GenericXdsConfigSchema, { name, xdsConfig: { typeUrl, value } });
    const known = anyPack(NodeSchema, create(NodeSchema, { id: 'inner' }));
    const response = create(ClientStatusResponseSchema, {
      config: [
        {
          genericXdsConfigs: [
            entry('known', known.typeUrl, known.value),
            entry('unknown', 'type.googleapis.com/example.Nothing', Buffer.from('abc')),
          ],
        },
      ],
    });
    const { url } = await start({
      clientStatus: () => ok([toBinary(ClientStatusResponseSchema, response)]),
    });
    const { status, body } = await rpc(url, csds, {});
    expect(status).to.equal(200);
    const [config] = body['config'] as { generic_xds_configs: { xds_config: Record<string, unknown> }[] }[];
    const [first, second] = config?.generic_xds_configs.map((entry) => entry.xds_config) ?? [];
    expect(first).to.include({ '@type': known.typeUrl, id: 'inner' });
    expect(second?.['value']).to.include({
      type_url: 'type.googleapis.com/example.Nothing',
      value_base64: Buffer.from('abc').toString('base64'),
    });
  });

  it('a bug behind it is a 500 and a line in the log, not a crash', async () => {
    const broken = () => {
      throw new Error('broken on purpose');
    };
    const { url } = await start({ configDump: broken, status: broken });
    const page = await fetch(`${url}/config_dump`);
    expect(page.status).to.equal(500);
    expect(await page.json()).to.deep.equal({ code: 'internal', message: 'this is a bug: see the log' });
    expect(await rpc(url, admin('Status'), {})).to.deep.include({ status: 500 });
    expect(lines.filter((line) => line.includes('broken on purpose'))).to.have.length(2);
    expect((await fetch(`${url}/healthz`)).status).to.equal(200);
  });

  describe('a request that is refused before all of its body has come', () => {
    /** Sends the head, and a chunk of the body. */
    async function begin(url: string, path: string, fields: readonly string[], chunk: string) {
      const { hostname, port, host } = new URL(url);
      const socket = createConnection({ host: hostname, port: Number(port) });
      const own = fields.some((field) => field.startsWith('host:')) ? [] : [`host: ${host}`];
      const json = fields.some((field) => field.startsWith('content-type:'))
        ? []
        : ['content-type: application/json'];
      const head = [
        `POST ${path} HTTP/1.1`,
        ...own,
        ...json,
        ...fields,
        'transfer-encoding: chunked',
        '',
        '',
      ];
      socket.write(head.join('\r\n'));
      socket.write(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
      let text = '';
      const answered = new Promise<string>((resolve, reject) => {
        socket.on('data', (data) => {
          text += data.toString();
          if (text.includes('}\n')) resolve(text);
        });
        socket.on('error', reject);
      });
      return { socket, status: Number((await answered).split(' ')[1]) };
    }

    const status = `/${admin('Status')}`;
    const large = 'x'.repeat(200 * 1024);
    const cases: readonly (readonly [number, string, readonly string[], string?])[] = [
      [404, '/nothing', []],
      [405, '/metrics', []],
      [405, '/events', []],
      [421, status, ['host: relay.example']],
      [403, status, ['origin: https://evil.example']],
      [415, status, ['content-type: text/plain']],
      [429, status, [], large],
    ];
    for (const [code, path, fields, chunk = '{'] of cases)
      it(`hears why, and its connection ends when all has come: ${code} at ${path}`, async () => {
        const { url } = await start();
        // Many clients read when they have sent all: Node's own, too.
        const { socket, status: heard } = await begin(url, path, ['connection: close', ...fields], chunk);
        expect(heard).to.equal(code);
        let isEnded = false;
        socket.on('end', () => {
          isEnded = true;
        });
        await new Promise((resolve) => setTimeout(resolve, 50));
        expect(isEnded).to.equal(false);
        const ended = once(socket, 'end');
        socket.write('1\r\n}\r\n0\r\n\r\n');
        await ended;
      });

    it('is read no further when it does not end', async () => {
      const { url } = await start();
      const { socket } = await begin(url, '/nothing', [], '{');
      const closed = new Promise((resolve) => {
        socket.on('close', resolve);
      });
      const chunk = `100000\r\n${'x'.repeat(1 << 20)}\r\n`;
      for (let sent = 0; sent < 40 && !socket.destroyed; sent++)
        if (!socket.write(chunk)) await Promise.race([once(socket, 'drain').catch(() => undefined), closed]);
      await closed;
    });
  });

  it('bounds requests that Node would answer itself as all others', async () => {
    const { url } = await start();
    const { hostname, port } = new URL(url);
    for (const [status, head] of [
      [400, ''],
      [417, 'host: localhost\r\nexpect: x\r\n'],
    ] as const) {
      const socket = createConnection({ host: hostname, port: Number(port) });
      socket.on('error', () => undefined);
      const request = `GET /healthz HTTP/1.1\r\n${head}\r\n`;
      socket.write(request);
      const answer: unknown[] = await once(socket, 'data');
      expect(String(answer[0])).to.match(new RegExp(`^HTTP/1.1 ${status} [^]*"code":`));
      socket.write(request.repeat(17));
      await once(socket.resume(), 'close');
    }
  });

  it('refuses a request past its limit, and survives garbage', async () => {
    const { url } = await start();
    const large = await rpc(url, admin('Explain'), { type: 'cds', name: 'x'.repeat(2 * 1024 * 1024) });
    expect(large.body['code']).to.equal('resource_exhausted');
    const { hostname, port } = new URL(url);
    const answer = await new Promise<string>((resolve) => {
      let text = '';
      const socket = createConnection({ host: hostname, port: Number(port) }, () =>
        socket.write('\0\0nonsense\r\n\r\n'),
      );
      socket.on('data', (data) => {
        text += data.toString();
      });
      socket.on('close', () => resolve(text));
    });
    expect(answer).to.match(/^HTTP\/1\.1 400/);
    const aborted = request(`${url}/${admin('Status')}`, {
      method: 'POST',
      headers: { 'content-length': 10 },
    });
    aborted.on('error', () => {});
    aborted.flushHeaders();
    await new Promise((resolve) => setTimeout(resolve, 20));
    aborted.destroy();
    expect((await fetch(`${url}/healthz`)).status).to.equal(200);
    expect(lines).to.deep.equal([]);
  });

  it('serves over TLS, to clients with a certificate only where one is required', async () => {
    const authority = issueCertificate({ name: 'authority', authority: true });
    const own = issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'] });
    const client = issueCertificate({ name: 'client', issuer: authority });
    const tls = {
      certificate: Buffer.from(own.certificate),
      privateKey: Buffer.from(own.privateKey),
      ca: Buffer.from(authority.certificate),
    };
    const started = await startAdminServer({
      host: '127.0.0.1',
      port: 0,
      tls,
      access,
      inspector: fakeInspector(),
      log,
    });
    if (!started.ok) throw new Error(started.error);
    server = started.value;
    const url = `https://${server.address}/healthz`;
    const get = (identity: { cert?: string; key?: string }) =>
      new Promise<number | string | undefined>((resolve) => {
        const options = { agent: false as const, ca: authority.certificate, ...identity };
        httpsGet(url, options, (response) => resolve(response.resume().statusCode)).on('error', (error) =>
          resolve(error.message),
        );
      });
    expect(await get({ cert: client.certificate, key: client.privateKey })).to.equal(200);
    expect(await get({})).not.to.equal(200);
    server.setTls({
      ...tls,
      ca: Buffer.from(issueCertificate({ name: 'other', authority: true }).certificate),
    });
    expect(await get({ cert: client.certificate, key: client.privateKey })).not.to.equal(200);
  });

  it('says why it cannot listen', async () => {
    const { url } = await start();
    const port = Number(new URL(url).port);
    const second = await startAdminServer({
      host: '127.0.0.1',
      port,
      tls: undefined,
      access,
      inspector: fakeInspector(),
      log,
    });
    expect(!second.ok && second.error).to.match(/^cannot listen on 127\.0\.0\.1:\d+: the address is in use/);
  });
});
