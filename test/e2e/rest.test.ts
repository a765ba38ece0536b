import { connect } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { expect } from 'chai';
import fc from 'fast-check';
import { z } from 'zod';
import { knownTypes } from '../../src/model/types.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';

const body = z.looseObject({
  versionInfo: z.string(),
  typeUrl: z.string(),
  resources: z.array(z.looseObject({ '@type': z.string() })).default([]),
});
const problem = z.strictObject({ code: z.string(), message: z.string() });

const json = { 'content-type': 'application/json' };
const node = { id: 'envoy-1', cluster: 'fleet' };
/** Of all types; client_status takes another message. */
const paths = knownTypes.flatMap(({ rest }) => rest ?? []);

/** The names of each, in the kind of JSON that a DiscoveryResponse is. */
const namesOf = (text: string): readonly unknown[] =>
  body.parse(JSON.parse(text)).resources.map(({ name, clusterName }) => name ?? clusterName);

describe('REST-JSON', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write(
      'cds',
      new Map([
        ['shop', '1'],
        ['office', '1'],
      ]),
    );
    files.write('eds', new Map([['shop', '1']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream], rest: {} });
    // On a busy machine a first poll may end with 503: upstream has not answered in time.
    await eventually(async () => expect((await post('clusters', { node })).status).to.equal(200));
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  const url = (path: string): string => `http://${relay.rest}/v3/discovery:${path}`;
  const post = (path: string, request: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(url(path), {
      method: 'POST',
      headers: { ...json, ...headers },
      body: typeof request === 'string' ? request : JSON.stringify(request),
    });

  it('a poll gets everything, with a version; with this version, 304', async () => {
    const answer = await post('clusters', { node });
    expect(answer.status).to.equal(200);
    expect(answer.headers.get('content-type')).to.equal('application/json');
    const said = body.parse(await answer.json());
    expect(said.typeUrl).to.equal('type.googleapis.com/envoy.config.cluster.v3.Cluster');
    expect(said.resources.map(({ name }) => name)).to.have.members(['shop', 'office']);
    for (const key of ['versionInfo', 'version_info']) {
      const again = await post('clusters', { node, [key]: said.versionInfo });
      expect([again.status, await again.text()]).to.deep.equal([304, '']);
    }
  });

  it('§7.3 a changed list of names does not starve behind 304', async () => {
    const first = await post('clusters', { node, resource_names: ['shop'] });
    const { versionInfo } = body.parse(await first.json());
    const more = await post('clusters', { node, versionInfo, resourceNames: ['shop', 'office'] });
    expect(more.status).to.equal(200);
    expect(namesOf(await more.text())).to.have.members(['shop', 'office']);
  });

  it('gzip where it is asked for', async () => {
    const { status, headers, bytes } = await overHttp2(relay.rest, 'clusters', { node }, 'br, gzip;q=0.5');
    expect([status, headers['content-encoding']]).to.deep.equal([200, 'gzip']);
    expect(namesOf(gunzipSync(bytes).toString())).to.have.members(['shop', 'office']);
    const plain = await overHttp2(relay.rest, 'clusters', { node }, 'gzip;q=0');
    expect(plain.headers['content-encoding']).to.equal(undefined);
    expect(namesOf(plain.bytes.toString())).to.have.members(['shop', 'office']);
  });

  const refusals: readonly {
    readonly what: string;
    readonly status: number;
    readonly path?: string;
    readonly body?: string;
    readonly headers?: Record<string, string>;
    readonly says: RegExp;
  }[] = [
    { what: 'a body that is not JSON', body: '{', status: 400, says: /not JSON/ },
    { what: 'an empty body', body: '', status: 400, says: /not JSON/ },
    { what: 'JSON that is no object', body: '[1]', status: 400, says: /not a JSON object/ },
    { what: 'a field of another kind', body: '{"node":7}', status: 400, says: /DiscoveryRequest/ },
    { what: 'no node', body: '{}', status: 400, says: /must carry node/ },
    { what: 'deep JSON', body: `${'['.repeat(5e5)}${']'.repeat(5e5)}`, status: 400, says: /deeply/ },
    {
      what: 'deep metadata',
      body: `{"node":{"id":"a","metadata":${'{"a":'.repeat(399)}1${'}'.repeat(400)}}`,
      status: 400,
      says: /deep/,
    },
    {
      what: 'another type than the path has',
      body: '{"node":{"id":"a"},"type_url":"type.googleapis.com/a.B"}',
      status: 400,
      says: /is served/,
    },
    { what: '5 MB', body: 'x'.repeat(5e6), status: 413, says: /max_poll_bytes/ },
    { what: 'another content type', headers: { 'content-type': 'text/plain' }, status: 415, says: /json/ },
    { what: 'a compressed body', headers: { 'content-encoding': 'gzip' }, status: 415, says: /uncompressed/ },
  ];
  for (const { what, status, body: sent = '{"node":{"id":"a"}}', headers, says } of refusals) {
    it(`${what}: ${status} on every path, and the relay goes on`, async () => {
      for (const path of paths) {
        const answer = await post(path, sent, headers);
        expect([path, answer.status]).to.deep.equal([path, status]);
        expect(problem.parse(await answer.json()).message).to.match(says);
      }
      expect((await post('clusters', { node })).status).to.equal(200);
    });
  }

  const csds: readonly (readonly [what: string, body: string, status: number])[] = [
    ['a body that is not JSON', '{', 400],
    ['JSON that is no object', '[1]', 400],
    ['a field of another kind', '{"node":7}', 400],
    ['deep JSON', `${'['.repeat(1e5)}${']'.repeat(1e5)}`, 400],
    ['300 KB', ' '.repeat(300_000), 413],
    ['5 MB', ' '.repeat(5e6), 413],
    ['unknown fields', '{"more":{"__proto__":{"x":1}},"__proto__":{"node":null}}', 200],
    ['an empty body, which asks for everything', '', 200],
  ];
  for (const [what, sent, status] of csds) {
    it(`client_status: ${what}: ${status}`, async () => {
      expect((await post('client_status', sent)).status).to.equal(status);
    });
  }

  it('a path that is not served is refused with those that are', async () => {
    const answer = await post('nothing', { node });
    expect(answer.status).to.equal(404);
    expect(problem.parse(await answer.json()).message).to.match(/there is POST/);
  });

  it('another method is refused with the one that is taken', async () => {
    const answer = await fetch(url('clusters'));
    expect([answer.status, answer.headers.get('allow')]).to.deep.equal([405, 'POST']);
  });

  for (const request of [
    '{"node":{"id":"a","unknown":{"x":[1]}},"more":true}',
    '{"node":{"id":"a","metadata":{"__proto__":{"x":"y"},"constructor":1}},"__proto__":{"node":null}}',
    '{"node":{"cluster":"without an id"}}',
  ]) {
    it(`unknown fields are ignored, on every path: ${request}`, async () => {
      for (const path of paths) {
        // What nobody has is not known to be absent for each type.
        expect([path, (await post(path, request)).status]).to.be.deep.oneOf([
          [path, 200],
          [path, 503],
        ]);
      }
      expect((await post('clusters', request)).status).to.equal(200);
    });
  }

  it('whatever the body is, the answer is one of those of the contract', async () => {
    const value = fc.letrec((tie) => ({
      any: fc.oneof({ maxDepth: 4 }, fc.json(), fc.string(), tie('request')),
      request: fc
        .dictionary(
          fc.constantFrom('node', 'resource_names', 'version_info', 'error_detail', '__proto__'),
          fc.jsonValue(),
        )
        .map((one) => JSON.stringify(one)),
    }));
    await fc.assert(
      fc.asyncProperty(value.any, async (sent) => {
        const { status } = await post('endpoints', String(sent));
        expect([200, 400]).to.include(status);
      }),
      { numRuns: 100 },
    );
  });

  it('metrics count polls as they count streams', async () => {
    expect(await relay.metric('downstream_responses_total', 'transport="rest"')).to.be.at.least(1);
    expect(await relay.metric('downstream_requests_total', 'type="cds",kind="subscribe"')).to.be.at.least(1);
    expect(await relay.metric('downstream_subscriptions', 'type="cds"')).to.be.at.least(1);
  });

  it('CSDS is served too, and tells a stranger nothing of others', async () => {
    const answer = await post('client_status', {});
    expect([answer.status, await answer.json()]).to.deep.equal([200, {}]);
    expect((await post('client_status', '{')).status).to.equal(400);
  });

  it('a new version reaches who polls', async () => {
    const { versionInfo } = body.parse(
      await (await post('endpoints', { node, resourceNames: ['shop'] })).json(),
    );
    files.write('eds', new Map([['shop', '2']]));
    const request = { node, versionInfo, resourceNames: ['shop'] };
    let answer = await post('endpoints', request);
    for (const end = Date.now() + 10_000; answer.status === 304 && Date.now() < end; ) {
      answer = await post('endpoints', request);
    }
    expect(answer.status).to.equal(200);
  });

  // Last: the relay of all these is gone then.
  it('a drain ends what is open, and the process with 0', async () => {
    const [host = '', port = ''] = relay.rest.split(':');
    const idle = connectTcp({ host, port: Number(port) });
    const session = connect(`http://${relay.rest}`);
    session.on('error', () => undefined);
    await new Promise((resolve) => {
      session.once('remoteSettings', resolve);
    });
    expect(await relay.stop()).to.equal(0);
    idle.destroy();
    session.destroy();
  });
});

/** One poll over HTTP/2 without TLS. */
async function overHttp2(address: string, path: string, request: object, encoding: string) {
  const session = connect(`http://${address}`);
  const headers = {
    ':method': 'POST',
    ':path': `/v3/discovery:${path}`,
    ...json,
    'accept-encoding': encoding,
  };
  const stream = session.request(headers).end(JSON.stringify(request));
  const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>();
  stream.on('response', resolve).on('error', reject);
  const answered = await promise;
  const bytes = await buffer(stream);
  session.close();
  return { status: answered[':status'], headers: answered, bytes };
}
