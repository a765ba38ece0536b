import { spawn } from 'node:child_process';
import { mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { type Client, credentials, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { type Clock, systemClock } from '../../src/model/clock.ts';
import type { Log } from '../../src/observe/log.ts';
import { Metrics } from '../../src/observe/metrics.ts';
import { readTlsFiles } from '../../src/security/tls-files.ts';
import { TlsFollower } from '../../src/watched-tls.ts';
import type { GrpcServer } from '../../src/wire/http2-server.ts';
import type { Peer, ServerStream } from '../../src/wire/server-stream.ts';
import { checkTlsMaterial } from '../../src/wire/tls-material.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { nextMessage, openCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, echo, serve } from './serve.ts';

const path = '/a.B/C';

function bytes(text: string): Buffer {
  return Buffer.from(text);
}

describe('TLS', () => {
  const authority = issueCertificate({ name: 'test authority', authority: true });
  const stranger = issueCertificate({ name: 'another authority', authority: true });
  const forServer = issueCertificate({
    name: 'server',
    issuer: authority,
    dns: ['localhost'],
    ips: ['127.0.0.1'],
  });
  const clients: Client[] = [];
  let peers: Peer[] = [];

  function accept(): (stream: ServerStream) => void {
    return (stream) => {
      peers.push(stream.peer);
      echo(stream);
    };
  }

  function serveTls(requireClientCertificate: boolean, ca = true): Promise<GrpcServer> {
    return serve({
      accept,
      tls: {
        certificate: bytes(forServer.certificate),
        privateKey: bytes(forServer.privateKey),
        ...(ca ? { ca: bytes(authority.certificate) } : {}),
        requireClientCertificate,
      },
    });
  }

  function client(server: GrpcServer, own?: Issued, trusted: Issued = authority): Client {
    const pems = own === undefined ? [] : [bytes(own.privateKey), bytes(own.certificate)];
    const made = rawClient(server.address, credentials.createSsl(bytes(trusted.certificate), ...pems), {
      'grpc.ssl_target_name_override': 'localhost',
    });
    clients.push(made);
    return made;
  }

  async function works(one: Client): Promise<boolean> {
    const call = openCall(one, path);
    call.write(bytes('x'));
    const outcome = await Promise.race([nextMessage(call), statusOf(call)]);
    call.end();
    return Buffer.isBuffer(outcome);
  }

  afterEach(async () => {
    peers = [];
    for (const open of clients.splice(0)) open.close();
    await closeServers();
  });

  it('serves h2 with a certificate, and asks for none from clients without ca', async () => {
    const server = await serveTls(false, false);
    const own = issueCertificate({ name: 'client', issuer: authority, uris: ['spiffe://x/y'] });
    expect(await works(client(server, own))).to.equal(true);
    expect(peers[0]).to.deep.include({ uriSans: [], dnsSans: [] });
  });

  it('gives the URI and DNS SANs of a verified client certificate', async () => {
    const server = await serveTls(true);
    const own = issueCertificate({
      name: 'client',
      issuer: authority,
      uris: ['spiffe://example.com/ns/a/sa/b', 'http://x/?a, DNS:forged.example.com'],
      dns: ['client.example.com', 'a"b', 'x, URI:spiffe://forged/admin'],
      ips: ['10.0.0.1'],
    });
    expect(await works(client(server, own))).to.equal(true);
    expect(peers[0]).to.deep.include({
      uriSans: ['spiffe://example.com/ns/a/sa/b', 'http://x/?a, DNS:forged.example.com'],
      dnsSans: ['client.example.com', 'a"b', 'x, URI:spiffe://forged/admin'],
    });
  });

  it('refuses clients without a certificate, of another authority, or expired, where one is required', async () => {
    const server = await serveTls(true);
    const expired = issueCertificate({ name: 'client', issuer: authority, days: -1 });
    const foreign = issueCertificate({ name: 'client', issuer: stranger });
    for (const own of [undefined, foreign, expired]) {
      const outcome = await statusOf(openCall(client(server, own), path));
      expect(outcome.code).to.equal(status.UNAVAILABLE);
    }
    expect(peers).to.deep.equal([]);
  });

  it('a client certificate that is refused or missing is reported with its reason as text and its address, and counted', async () => {
    const reports: unknown[] = [];
    const refused: string[] = [];
    const server = await serve({
      accept,
      report: (message, error, peer = '') => reports.push([message, error, peer.replace(/\d+$/, 'PORT')]),
      refused: (reason) => refused.push(reason),
      tls: {
        certificate: bytes(forServer.certificate),
        privateKey: bytes(forServer.privateKey),
        ca: bytes(authority.certificate),
        requireClientCertificate: true,
      },
    });
    const [host, port] = server.address.split(':');
    const expired = issueCertificate({ name: 'client', issuer: authority, days: -1 });
    const foreign = issueCertificate({ name: 'client', issuer: stranger });
    const why: string[] = [];
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      for (const own of [expired, foreign, undefined]) {
        const pair = own && { cert: own.certificate, key: own.privateKey };
        const socket = connectTls({
          ...{ host, port: Number(port), ca: authority.certificate, ...pair, ALPNProtocols: ['h2'] },
          ...{ minVersion: version, maxVersion: version },
        });
        socket.on('error', () => undefined).resume();
        await new Promise((resolve) => socket.once('close', resolve));
      }
      why.push(
        "the client's certificate is refused: the certificate has expired (CERT_HAS_EXPIRED)",
        "the client's certificate is refused: the authority that issued the certificate is not trusted (UNABLE_TO_VERIFY_LEAF_SIGNATURE)",
        'the client sent no certificate (ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE)',
      );
    }
    expect(reports).to.deep.equal(why.map((reason) => ['a TLS handshake failed', reason, '127.0.0.1:PORT']));
    const reasons = ['certificate_expired', 'certificate_untrusted', 'certificate_missing'];
    expect(refused).to.deep.equal(why.map((_, index) => reasons[index % 3]));
  });

  it('a certificate that is not verified gives no names where none is required', async () => {
    const server = await serveTls(false);
    const foreign = issueCertificate({
      name: 'client',
      issuer: stranger,
      uris: ['spiffe://example.com/admin'],
    });
    expect(await works(client(server, foreign))).to.equal(true);
    expect(peers[0]).to.deep.include({ uriSans: [], dnsSans: [] });
  });

  it('a failed handshake is reported, costs the others nothing, and plain HTTP/2 gets no answer', async () => {
    const reports: string[] = [];
    const server = await serve({
      accept,
      report: (message, error, peer) => reports.push(`${message} ${peer}: ${String(error)}`),
      tls: {
        certificate: bytes(forServer.certificate),
        privateKey: bytes(forServer.privateKey),
        requireClientCertificate: false,
      },
    });
    const plain = rawClient(server.address);
    clients.push(plain);
    expect((await statusOf(openCall(plain, path))).code).to.equal(status.UNAVAILABLE);
    const [host, port] = server.address.split(':');
    const http1 = connectTls({
      host,
      port: Number(port),
      ca: authority.certificate,
      ALPNProtocols: ['http/1.1'],
    });
    await new Promise((resolve) => http1.once('error', resolve));
    expect(await works(client(server))).to.equal(true);
    expect(reports[0]).to.match(/^a TLS handshake failed 127\.0\.0\.1:\d+: /);
  });

  it('a client that refuses the certificate is reported in words, with its address', async () => {
    const reports: string[] = [];
    const server = await serve({
      accept,
      report: (message, error, peer) => reports.push(`${message} ${peer}: ${String(error)}`),
      tls: {
        certificate: bytes(forServer.certificate),
        privateKey: bytes(forServer.privateKey),
        requireClientCertificate: false,
      },
    });
    // Node's own client looks at the certificate after the handshake, and sends no alert.
    const ca = join(await mkdtemp(join(tmpdir(), 'tls-')), 'ca.crt');
    await writeFile(ca, stranger.certificate);
    const args = ['s_client', '-connect', server.address, '-verify_return_error', '-CAfile', ca];
    const openssl = spawn('openssl', args, { stdio: 'ignore' });
    await new Promise((resolve) => openssl.once('close', resolve));
    await eventually(() => expect(reports).to.have.length(1));
    expect(reports[0]).to.match(
      /^a TLS handshake failed 127\.0\.0\.1:\d+: the other end refuses the certificate that it was shown: unknown ca$/,
    );
  });

  it('CBC is refused: TLS 1.2 by AEAD ciphers only, TLS 1.3, nothing older, after a new certificate too', async () => {
    const server = await serveTls(false);
    const [host, port] = server.address.split(':');
    const offer = (options: ConnectionOptions): Promise<string> =>
      new Promise((resolve) => {
        const common = { host, port: Number(port), ca: authority.certificate, servername: 'localhost' };
        const socket = connectTls({ ...common, ALPNProtocols: ['h2'], ...options }, () => {
          resolve(socket.getCipher().standardName);
          socket.destroy();
        });
        socket.once('error', (error: Error) => resolve(error.message));
      });
    const old = { maxVersion: 'TLSv1.2' } as const;
    for (const round of ['first', 'reloaded']) {
      for (const ciphers of [
        'ECDHE-ECDSA-AES128-SHA256',
        'ECDHE-ECDSA-AES256-SHA',
        'AES128-SHA:ECDHE-ECDSA-AES128-SHA',
      ])
        expect(await offer({ ...old, ciphers }), `${round} ${ciphers}`).to.match(/handshake failure/);
      for (const ciphers of ['ECDHE-ECDSA-AES128-GCM-SHA256', 'ECDHE-ECDSA-CHACHA20-POLY1305'])
        expect(await offer({ ...old, ciphers })).to.match(/^TLS_ECDHE_ECDSA_.*_(GCM|POLY1305)_/);
      expect(await offer({})).to.match(/^TLS_AES_/);
      const ancient = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'ALL@SECLEVEL=0' } as const;
      expect(await offer(ancient)).to.match(/protocol version|no protocols/);
      const certificate = bytes(forServer.certificate);
      server.setTls({ certificate, privateKey: bytes(forServer.privateKey) });
    }
  });

  it('a key of another certificate is refused, and so is no PEM', () => {
    const other = issueCertificate({ name: 'other' });
    const certificate = bytes(forServer.certificate);
    const privateKey = bytes(forServer.privateKey);
    const errors = [
      { certificate, privateKey: bytes(other.privateKey) },
      { certificate: bytes('x'), privateKey },
      { certificate, privateKey, ca: bytes('') },
      { certificate },
    ].map((material) => {
      const checked = checkTlsMaterial(material);
      return checked.ok ? 'accepted' : checked.error;
    });
    expect(errors[0]).to.contain('does not belong to the certificate');
    expect(errors[1]).to.contain('not PEM');
    expect(errors[2]).to.contain('ca has no PEM certificate');
    expect(errors[3]).to.contain('belong together');
  });

  it('a new certificate is used for new connections while the open ones go on', async () => {
    const server = await serveTls(false);
    const old = openCall(client(server), path);
    old.write(bytes('before'));
    await nextMessage(old);
    const next = issueCertificate({
      name: 'server',
      issuer: stranger,
      dns: ['localhost'],
      ips: ['127.0.0.1'],
    });
    server.setTls({
      certificate: bytes(next.certificate),
      privateKey: bytes(next.privateKey),
      ca: bytes(stranger.certificate),
    });
    const own = issueCertificate({ name: 'client', issuer: stranger, uris: ['spiffe://example.com/new'] });
    expect(await works(client(server, own, stranger))).to.equal(true);
    expect(peers.at(-1)?.uriSans).to.deep.equal(['spiffe://example.com/new']);
    old.write(bytes('after'));
    expect((await nextMessage(old)).toString()).to.equal('after');
  });

  describe('files', () => {
    let directory: string;
    const stop: (() => void)[] = [];

    beforeEach(async () => {
      directory = await mkdtemp(join(tmpdir(), 'distributary-'));
    });
    afterEach(async () => {
      for (const end of stop.splice(0)) end();
      await rm(directory, { recursive: true });
    });

    async function put(where: string, issued: Issued): Promise<void> {
      await writeFile(join(where, 'tls.crt'), issued.certificate);
      await writeFile(join(where, 'tls.key'), issued.privateKey);
    }

    const pair = () => ({ certificate: join(directory, 'tls.crt'), privateKey: join(directory, 'tls.key') });

    async function watched(clock: Clock = systemClock) {
      const followed = await read(clock);
      followed.follow();
      return followed;
    }

    /** They were read, and are not followed yet. */
    async function read(clock: Clock) {
      const heard: string[] = [];
      let wake = (): void => undefined;
      const tell = (what: string): void => {
        heard.push(what);
        wake();
      };
      const metrics = new Metrics();
      const quiet = (): void => {};
      const error: Log['error'] = (_, fields) => tell(String(fields?.['error']));
      const log: Log = { debug: quiet, info: quiet, warn: quiet, error, child: () => log };
      const follower = new TlsFollower({ listener: 'xds' }, pair(), { log, metrics }, clock);
      stop.push(() => follower.close());
      await follower.material();
      return {
        follow: () => void follower.follow(({ certificate }) => tell(String(certificate))),
        isRefused: () => metrics.certificates.followed()[0]?.refused !== undefined,
        async next() {
          if (heard.length === 0) await new Promise<void>((resolve) => (wake = resolve));
          return heard.shift() ?? '';
        },
      };
    }

    it('names the file and the cause', async () => {
      const missing = await readTlsFiles({ certificate: join(directory, 'no.crt'), privateKey: 'x' });
      expect(missing.ok ? '' : missing.error).to.match(
        /^certificate .*no\.crt: there is no such file.*ENOENT/,
      );
      await writeFile(join(directory, 'tls.crt'), 'x');
      await writeFile(join(directory, 'tls.key'), 'x');
      const files = { certificate: join(directory, 'tls.crt'), privateKey: join(directory, 'tls.key') };
      const bad = await readTlsFiles(files);
      expect(bad.ok ? '' : bad.error).to.match(/tls\.crt.*tls\.key: it is not PEM/);
    });

    it('a new version is told once, a bad one is refused once, and the next good one is told', async () => {
      await put(directory, forServer);
      const watching = await watched();
      const second = issueCertificate({ name: 'second' });
      await put(directory, second);
      expect(await watching.next()).to.equal(second.certificate);
      await writeFile(join(directory, 'tls.crt'), forServer.certificate);
      expect(await watching.next()).to.contain('does not belong to the certificate');
      expect(watching.isRefused()).to.equal(true);
      await writeFile(join(directory, 'tls.key'), forServer.privateKey);
      expect(await watching.next()).to.equal(forServer.certificate);
      await eventually(() => expect(watching.isRefused()).to.equal(false));
    });

    it('a refusal is over when the old files are back', async () => {
      await put(directory, forServer);
      const watching = await watched();
      await writeFile(join(directory, 'tls.crt'), 'x');
      expect(await watching.next()).to.contain('not PEM');
      expect(watching.isRefused()).to.equal(true);
      await put(directory, forServer);
      await eventually(() => expect(watching.isRefused()).to.equal(false));
    });

    it('what changed between the reading and the watch is taken when it has settled', async () => {
      await put(directory, forServer);
      const clock = new VirtualClock();
      const watching = await read(clock);
      const second = issueCertificate({ name: 'second' });
      await put(directory, second);
      watching.follow();
      await setImmediate();
      clock.advance(200);
      expect(await watching.next()).to.equal(second.certificate);
    });

    it('files that are not there yet when the watch begins are not refused: they may be written soon', async () => {
      const clock = new VirtualClock();
      const watching = await watched(clock);
      await setImmediate();
      clock.advance(200);
      // As long as a look takes.
      await readTlsFiles(pair());
      await put(directory, forServer);
      clock.advance(10_200);
      expect(await watching.next()).to.equal(forServer.certificate);
    });

    it('notices a swap of symbolic links, as of a Kubernetes Secret', async () => {
      const inner = async (name: string, issued: Issued): Promise<void> => {
        const where = await mkdtemp(join(directory, name));
        await put(where, issued);
        await symlink(where, join(directory, '..new'));
        await rename(join(directory, '..new'), join(directory, '..data'));
      };
      await inner('1', forServer);
      await symlink(join('..data', 'tls.crt'), join(directory, 'tls.crt'));
      await symlink(join('..data', 'tls.key'), join(directory, 'tls.key'));
      const watching = await watched();
      const second = issueCertificate({ name: 'second' });
      await inner('2', second);
      expect(await watching.next()).to.equal(second.certificate);
    });
  });
});
