import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { request } from 'node:https';
import { connect as connectTcp } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { PemFiles } from './support/pem-files.ts';
import { RelayProcess } from './support/relay.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'] });
const web = issueCertificate({ name: 'web', issuer: authority, uris: ['spiffe://example.com/web'] });
const batch = issueCertificate({ name: 'batch', issuer: authority, uris: ['spiffe://example.com/batch'] });

const path = '/v3/discovery:clusters';
const poll = JSON.stringify({ node: { id: 'envoy-1' } });
const json = { 'content-type': 'application/json' };

interface Answer {
  readonly status: number;
  readonly body: string;
}

describe('the REST listener', () => {
  let files: ResourceFiles;
  let pem: PemFiles;

  before(() => {
    files = new ResourceFiles();
    pem = new PemFiles();
    files.write('cds', new Map([['shop', '1']]));
  });

  after(() => {
    files?.[Symbol.dispose]();
    pem?.[Symbol.dispose]();
  });

  async function overHttp1(address: string, identity: Issued | undefined): Promise<Answer> {
    const key = identity === undefined ? {} : { cert: identity.certificate, key: identity.privateKey };
    const options = {
      method: 'POST',
      headers: json,
      agent: false as const,
      ca: authority.certificate,
      ...key,
    };
    const sent = request(`https://${address}${path}`, options);
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    sent.on('error', reject).on('response', (response) => {
      void text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }));
    });
    sent.end(poll);
    return promise;
  }

  async function overTlsHttp2(address: string, identity: Issued): Promise<Answer> {
    const session = connectHttp2(`https://${address}`, {
      ca: authority.certificate,
      cert: identity.certificate,
      key: identity.privateKey,
    });
    try {
      const stream = session.request({ ':method': 'POST', ':path': path, ...json });
      stream.end(poll);
      let status = 0;
      stream.on('response', (headers) => {
        status = headers[':status'] ?? 0;
      });
      return { body: await text(stream), status };
    } finally {
      session.close();
    }
  }

  it('mutual TLS, HTTP/1.1 and HTTP/2: the rules decide by the certificate', async () => {
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      xds: { authorization: { rules: [{ principals: ['spiffe://example.com/web'], allow: true }] } },
      rest: { tls: { ...pem.identity('server', server), ca: pem.bundle('ca', [authority]) } },
    });
    for (const ask of [overHttp1, overTlsHttp2]) {
      await eventually(async () => {
        const allowed = await ask(relay.rest, web);
        expect([allowed.status, allowed.body.includes('"shop"')]).to.deep.equal([200, true]);
      });
      const denied = await ask(relay.rest, batch);
      expect([denied.status, denied.body.includes('"code":"permission_denied"')]).to.deep.equal([403, true]);
    }
    const unknown = await overHttp1(relay.rest, undefined);
    expect([unknown.status, unknown.body.includes('client certificate')]).to.deep.equal([401, true]);
    expect(await relay.metric('downstream_rejected_total', 'reason="denied"')).to.equal(3);
  });

  it('workers serve it as they serve streams', async () => {
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], rest: {}, workers: 2 });
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    const polled = async (): Promise<void> => {
      const answer = await fetch(`http://${relay.rest}${path}`, {
        method: 'POST',
        headers: { ...json, connection: 'close' },
        body: poll,
      });
      expect([answer.status, (await answer.text()).includes('"shop"')]).to.deep.equal([200, true]);
    };
    // Where a worker has not heard of the resource in time, it answers 503.
    for (let count = 0; count < 6; count++) await eventually(polled);
    // Of a worker that has no time to answer, an older count is told.
    await eventually(async () => {
      expect(await relay.metric('downstream_responses_total', 'transport="rest"')).to.equal(6);
    });
    expect(await relay.stop()).to.equal(0);
  });

  it('a body that does not arrive is 408, one that is too large 413, and metrics count both', async () => {
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      rest: {},
      limits: { stalled_timeout: '3s' },
    });
    const [host = '', port = ''] = relay.rest.split(':');
    const socket = connectTcp({ host, port: Number(port) });
    socket.write(
      `POST ${path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{`,
    );
    const ended = once(socket, 'close');
    const said = await text(socket);
    expect(said).to.match(/^HTTP\/1\.1 408 /);
    await ended;
    expect(await relay.metric('downstream_rejected_total', 'reason="half_sent"')).to.equal(1);
    const body = Buffer.alloc(2 << 20);
    expect(
      (await fetch(`http://${relay.rest}${path}`, { method: 'POST', headers: json, body })).status,
    ).to.equal(413);
    expect(await relay.metric('downstream_rejected_total', 'reason="request_bytes"')).to.equal(1);
  });

  it('limits.max_connections counts both listeners', async () => {
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      rest: {},
      limits: { max_connections: 2 },
    });
    const sockets = [relay.xds, relay.rest, relay.rest].map((address) => {
      const [host = '', port = ''] = address.split(':');
      return connectTcp({ host, port: Number(port) });
    });
    try {
      const closed = sockets.map((socket) => once(socket, 'close'));
      await Promise.race(closed);
      expect(await relay.metric('downstream_rejected_total', 'reason="connections"')).to.equal(1);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  });
});
