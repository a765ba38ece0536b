import { request } from 'node:https';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { type ChannelCredentials, credentials, ServerCredentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { z } from 'zod';
import { Code } from '../../src/wire/grpc-status.ts';
import { cases } from '../support/cases.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { PemFiles, trusting } from './support/pem-files.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { deltaNames, XdsClient, type XdsClientOptions } from './support/xds-client.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const other = issueCertificate({ name: 'another authority', authority: true });
const issue = (name: string, names: { uris?: readonly string[]; dns?: readonly string[] }): Issued =>
  issueCertificate({ name, issuer: authority, ...names });
const server = issueCertificate({
  name: 'relay',
  issuer: authority,
  ips: ['127.0.0.1'],
  dns: ['relay.test'],
});
const web = issue('web', { uris: ['spiffe://example.com/web/1'] });
const batch = issue('batch', { uris: ['spiffe://example.com/batch/1'] });
const operator = issue('operator', { dns: ['ops.internal.test'] });
const stranger = issueCertificate({ name: 'web', issuer: other, uris: ['spiffe://example.com/web/1'] });

describe('TLS', () => {
  let pem: PemFiles;
  let resources: ResourceFiles;

  before(() => {
    pem = new PemFiles();
    resources = new ResourceFiles();
    const all = new Map(['shop', 'office', 'private-till'].map((name) => [name, 'x']));
    for (const type of ['cds', 'eds', 'sds']) resources.write(type, all);
  });

  after(() => {
    pem?.[Symbol.dispose]();
    resources?.[Symbol.dispose]();
  });

  const start = (tls: object, more: object = {}, config: object = {}): Promise<RelayProcess> =>
    RelayProcess.start({
      upstreams: [resources.upstream],
      xds: { tls: { ...pem.identity('server', server), ...tls }, ...more },
      ...config,
    });
  const client = (relay: RelayProcess, secure: ChannelCredentials, more: XdsClientOptions = {}): XdsClient =>
    new XdsClient(relay.xds, 'delta', { secure, serverName: 'relay.test', ...more });
  const gets = async (one: XdsClient, type: string): Promise<readonly string[]> => {
    one.subscribe(type, ['*']);
    await one.gets(type);
    return one.of(type).flatMap(deltaNames);
  };

  describe('of its listeners', () => {
    let relay: RelayProcess;
    before(async () => {
      relay = await start({}, {}, { admin: { tls: pem.identity('admin', server) } });
    });
    after(() => relay?.[Symbol.asyncDispose]());

    it('clients that trust its certificate are served, others and plaintext ones are not', async () => {
      await using good = client(relay, trusting(authority));
      expect(await gets(good, 'cds')).to.have.length(3);
      for (const secure of [trusting(other), credentials.createInsecure()]) {
        await using bad = client(relay, secure);
        bad.subscribe('cds');
        expect((await bad.ends()).code).to.equal(Code.UNAVAILABLE);
      }
      expect(await gets(good, 'eds')).to.have.length(3);
      expect(relay.faults()).to.deep.equal([]);
    });

    it('CBC ciphers are refused on the xDS port', async () => {
      const [host, port] = relay.xds.split(':');
      const offer = (ciphers: string): Promise<string> =>
        new Promise((resolve) => {
          const ca = authority.certificate;
          const options = { host, port: Number(port), ca, servername: 'relay.test', ALPNProtocols: ['h2'] };
          const socket = connectTls({ ...options, ciphers, maxVersion: 'TLSv1.2' }, () => {
            resolve(socket.getCipher().name);
            socket.destroy();
          });
          socket.once('error', (error: Error) => resolve(error.message));
        });
      expect(await offer('ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA')).to.match(/handshake failure/);
      const aead = 'ECDHE-ECDSA-AES128-GCM-SHA256';
      expect(await offer(aead)).to.equal(aead);
    });

    it('the admin listener has one too', async () => {
      const status = await new Promise((resolve, reject) => {
        const options = { ca: authority.certificate, agent: false };
        request(`https://${relay.admin}/healthz`, options, (response) => {
          response.resume();
          response.on('end', () => resolve(response.statusCode));
        })
          .on('error', reject)
          .end();
      });
      expect(status).to.equal(200);
    });
  });

  it('require_client_certificate: a certificate of the ca, or no connection', async () => {
    const ca = pem.write('ca.crt', authority.certificate);
    await using relay = await start({ ca, require_client_certificate: true });
    await using good = client(relay, trusting(authority, web));
    expect(await gets(good, 'cds')).to.have.length(3);
    for (const own of [undefined, stranger]) {
      await using bad = client(relay, trusting(authority, own));
      bad.subscribe('cds');
      expect((await bad.ends()).code).to.equal(Code.UNAVAILABLE);
    }
    expect(await gets(good, 'eds')).to.have.length(3);
  });

  it('authorization by SAN: what is denied is left out; PERMISSION_DENIED only if everything is', async () => {
    const ca = pem.write('ca.crt', authority.certificate);
    const rules = [
      { names: ['private-*'], principals: ['dns:*.internal.test'], allow: true },
      { names: ['private-*'], allow: false },
      { principals: ['spiffe://example.com/web/*'], types: ['cds', 'eds'], allow: true },
      { principals: ['dns:*.internal.test'], allow: true },
    ];
    await using relay = await start({ ca }, { authorization: { rules } });
    await using asWeb = client(relay, trusting(authority, web));
    expect(await gets(asWeb, 'cds')).to.have.members(['shop', 'office']);
    await using asOperator = client(relay, trusting(authority, operator));
    expect(await gets(asOperator, 'sds')).to.have.members(['shop', 'office', 'private-till']);
    // Of another authority: a certificate that proves nothing.
    for (const own of [batch, stranger, undefined]) {
      await using nobody = client(relay, trusting(authority, own));
      nobody.subscribe('cds');
      const { code, details } = await nobody.ends();
      expect([code, details]).to.deep.equal([
        Code.PERMISSION_DENIED,
        'this client may not subscribe to anything',
      ]);
    }
    const path = '/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets';
    await using secrets = client(relay, trusting(authority, web), { path });
    secrets.subscribe('sds', ['shop']);
    expect((await secrets.ends()).code).to.equal(Code.PERMISSION_DENIED);
    // By name, on ADS: as if it did not exist.
    asWeb.subscribe('eds', ['shop', 'private-till']);
    await eventually(() => {
      expect(asWeb.of('eds').flatMap(deltaNames)).to.deep.equal(['shop']);
      expect(asWeb.of('eds').flatMap(({ removed }) => removed)).to.deep.equal(['private-till']);
    });
  });

  it('a trusted parameter of the certificate wins over what a client says of itself', async () => {
    using variants = new ResourceFiles();
    variants.writeText(
      'cds.yaml',
      ['web', 'batch'].reduce((text, kind) => `${text}${variant(kind)}`, 'resources:\n'),
    );
    const ca = pem.write('ca.crt', authority.certificate);
    const parameters = [
      { key: 'kind', from: 'peer.uri_san', pattern: '^spiffe://example.com/([a-z]+)/', trusted: true },
    ];
    await using relay = await start({ ca }, {}, { parameters, upstreams: [variants.upstream] });
    for (const [own, kind] of [
      [web, 'web'],
      [batch, 'batch'],
    ] as const) {
      await using one = client(relay, trusting(authority, own));
      one.delta('cds', {
        resourceLocatorsSubscribe: [{ name: 'shop', dynamicParameters: { kind: 'web' } }],
      });
      const { first } = await one.gets('cds');
      expect(first.map((bytes) => bytes.toString('latin1')).join()).to.include(`for-${kind}`);
    }
  });

  it('a new certificate is taken for new connections, without a restart', async () => {
    await using relay = await start(pem.identity('rotating', server));
    await using before = client(relay, trusting(authority));
    expect(await gets(before, 'cds')).to.have.length(3);
    const next = issueCertificate({ name: 'relay', issuer: other, dns: ['relay.test'] });
    pem.identity('rotating', next);
    await eventually(async () => {
      await using after = client(relay, trusting(other));
      after.subscribe('cds');
      expect((await after.gets('cds')).resources).to.equal(3);
    });
    pem.write('rotating.key', server.privateKey);
    await eventually(() => {
      expect(relay.log.map(({ message }) => message)).to.include('a new certificate is refused');
    });
    expect(await gets(before, 'eds')).to.have.length(3);
  });

  for (const workers of cases(0, 2)) {
    it(`a client whose authority was removed does not stay, nor come back, within drain_timeout (${workers} workers)`, async () => {
      const ca = pem.bundle('shrinking.crt', [authority, other]);
      const rules = [{ principals: ['spiffe://example.com/*'], allow: true }];
      await using relay = await start({ ca }, { authorization: { rules } }, { workers, drain_timeout: '2s' });
      const own = [stranger, stranger, stranger, web, web];
      const all = own.map((issued) => client(relay, trusting(authority, issued)));
      for (const one of all) expect(await gets(one, 'cds')).to.have.length(3);
      const [gone, stay] = [all.slice(0, 3), all.slice(3)];
      pem.overwrite('shrinking.crt', authority.certificate);
      for (const one of gone) {
        const { code, details } = await one.ends();
        expect(code).to.equal(Code.UNAVAILABLE);
        expect(details).to.contain('xds.tls.ca');
      }
      await eventually(() => {
        const reviewed = relay.log.filter(({ message }) =>
          message.startsWith('authorities were removed from ca'),
        );
        expect(reviewed.reduce((sum, { connections }) => sum + Number(connections), 0)).to.equal(3);
      });
      await using again = client(relay, trusting(authority, stranger));
      again.subscribe('cds');
      expect((await again.ends()).code).to.equal(Code.PERMISSION_DENIED);
      for (const one of stay) {
        expect(one.status).to.equal(undefined);
        expect(await gets(one, 'eds')).to.have.length(3);
      }
      for (const one of all) await one[Symbol.asyncDispose]();
    });
  }

  describe('to a control plane that wants certificates', () => {
    let plane: ControlPlane;

    before(async () => {
      plane = new ControlPlane();
      plane.answer = (stream, asked) => {
        if (asked.responseNonce === '') stream.send(typeOf('cds'), '1', 'shop:from-above');
      };
      const pair = {
        private_key: Buffer.from(server.privateKey),
        cert_chain: Buffer.from(server.certificate),
      };
      await plane.listen(0, ServerCredentials.createSsl(Buffer.from(authority.certificate), [pair], true));
    });

    after(() => plane?.kill());

    const above = (tls: object): object => {
      const ca = pem.write('ca.crt', authority.certificate);
      const backoff = { initial: '50ms', max: '100ms' };
      return upstream(`127.0.0.1:${plane.port}`, 'DELTA', { tls: { ca, ...tls }, backoff });
    };

    it('mutual TLS: the relay shows its own', async () => {
      const config = { upstreams: [above(pem.identity('relay', web))] };
      await using relay = await RelayProcess.start(config);
      await using one = new XdsClient(relay.xds, 'delta');
      expect(await gets(one, 'cds')).to.deep.equal(['shop']);
    });

    it('server_name: what the certificate must be for', async () => {
      const own = pem.identity('relay', web);
      const named = (type: string, server_name: string) => ({
        ...above({ ...own, server_name }),
        name: type,
        types: [type],
      });
      await using relay = await RelayProcess.start({
        upstreams: [named('cds', 'relay.test'), named('eds', 'wrong.test'), named('lds', '127.0.0.2')],
      });
      await using one = new XdsClient(relay.xds, 'delta');
      expect(await gets(one, 'cds')).to.deep.equal(['shop']);
      await eventually(async () => {
        const [wrong, other] = await whyNot(relay, 'eds', 'lds');
        expect(wrong).to.contain('wrong.test');
        expect(other).to.contain('127.0.0.2');
      });
    });

    /** A control plane of its own, with this certificate. */
    const other = async (issued: Issued): Promise<ControlPlane> => {
      const pair = {
        private_key: Buffer.from(issued.privateKey),
        cert_chain: Buffer.from(issued.certificate),
      };
      const made = new ControlPlane();
      made.answer = plane.answer;
      return made.listen(0, ServerCredentials.createSsl(null, [pair]));
    };
    /** `localhost` is its common name too. */
    const spiffe = 'spiffe://example.com/control-plane';
    const nameless = issueCertificate({ name: 'localhost', issuer: authority, uris: [spiffe] });
    const endpoint = (port: number, tls: object): object => {
      const ca = pem.write('ca.crt', authority.certificate);
      const backoff = { initial: '50ms', max: '100ms' };
      return upstream(`localhost:${port}`, 'DELTA', { tls: { ca, ...tls }, backoff });
    };

    it('server_identities: a control plane with a SPIFFE name and no DNS name is demanded by it', async () => {
      const above = await other(nameless);
      const identities = ['spiffe://example.com/nobody', spiffe];
      await using relay = await RelayProcess.start({
        upstreams: [endpoint(above.port, { server_identities: identities })],
      });
      await using one = new XdsClient(relay.xds, 'delta');
      expect(await gets(one, 'cds')).to.deep.equal(['shop']);
      above.kill();
    });

    it('a workload of the same authority does not pass for the control plane, nor does a common name', async () => {
      const workload = await other(
        issue('localhost', { uris: ['spiffe://example.com/workload'], dns: ['localhost'] }),
      );
      const above = await other(nameless);
      await using relay = await RelayProcess.start({
        upstreams: [
          { ...endpoint(workload.port, { server_identities: [spiffe] }), name: 'workload', types: ['cds'] },
          { ...endpoint(above.port, {}), name: 'nameless', types: ['eds'] },
        ],
      });
      await eventually(async () => {
        const [first, second] = await whyNot(relay, 'workload', 'nameless');
        for (const word of [spiffe, 'spiffe://example.com/workload', 'server_identities'])
          expect(first).to.contain(word);
        for (const word of [spiffe, 'it is not for localhost', 'server_name', 'server_identities'])
          expect(second).to.contain(word);
      });
      expect([...workload.streams, ...above.streams]).to.deep.equal([]);
      workload.kill();
      above.kill();
    });

    it('a control plane that has only CBC ciphers is not talked to', async () => {
      const only = {
        key: server.privateKey,
        cert: server.certificate,
        ciphers: 'ECDHE-ECDSA-AES128-SHA256',
        maxVersion: 'TLSv1.2',
      } as const;
      const above = createTlsServer(only);
      const failed = new Promise<Error>((resolve) => above.once('tlsClientError', resolve));
      above.on('secureConnection', (socket) => socket.destroy());
      await new Promise<void>((resolve) => above.listen(0, '127.0.0.1', resolve));
      const bound = above.address();
      const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
      await using relay = await RelayProcess.start({ upstreams: [endpoint(port, {})] });
      expect((await failed).message).to.match(/no shared cipher/);
      expect((await relay.get('/ready')).status).to.equal(503);
      above.close();
    });

    it('without a certificate, or with one of another authority: not ready, and the log says why, once', async () => {
      await using relay = await RelayProcess.start({
        upstreams: [
          { ...above({}), name: 'without', types: ['cds'] },
          { ...above(pem.identity('stranger', stranger)), name: 'stranger', types: ['eds'] },
        ],
      });
      for (const name of ['without', 'stranger']) {
        await eventually(async () => {
          expect(await relay.metric('upstream_reconnects_total', `upstream="${name}"`)).to.be.greaterThan(3);
        });
        expect((await relay.get('/ready')).status).to.equal(503);
        const said = relay.log.filter(
          ({ message, upstream: of }) => message === 'control plane failed' && of === name,
        );
        const reasons = said.map(({ reason }) => reason);
        // TLS 1.3 tells a client of its certificate when the client thinks that it is connected: the reasons differ.
        expect(reasons).to.have.length(new Set(reasons).size);
        expect(reasons.length).to.be.within(1, 4);
      }
    });
  });
});

/** Why these upstreams and no others are not connected, as /ready says it. */
async function whyNot(relay: RelayProcess, ...names: readonly string[]): Promise<readonly string[]> {
  const { status, body } = await relay.get('/ready');
  expect(status).to.equal(503);
  const { reason } = z.object({ reason: z.string() }).parse(JSON.parse(body));
  const said = names.map((name) => `${name} \\((.*)\\)`).join(', ');
  const found = new RegExp(`^not connected yet: ${said}$`).exec(reason);
  if (found === null) throw new Error(`not of ${names.join(' and ')}: ${reason}`);
  return found.slice(1);
}

const variant = (kind: string): string => `
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    resource_name:
      name: shop
      dynamic_parameter_constraints: { constraint: { key: kind, value: ${kind} } }
    resource:
      "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
      name: shop
      alt_stat_name: for-${kind}
`;
