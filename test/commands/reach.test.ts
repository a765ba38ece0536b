import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { expect } from 'chai';
import { reach } from '../../src/commands/reach.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';

const servers: Server[] = [];

/** Its address, on loopback. */
async function listening(server: Server): Promise<string> {
  servers.push(server);
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function typed(...args: readonly string[]) {
  let out = '';
  let err = '';
  const code = await reach(args, {
    out: (text) => void (out += text),
    err: (text) => void (err += text),
    environment: {},
  });
  return { code, out, err };
}

describe('distributary reach', () => {
  const directory = mkdtempSync(join(tmpdir(), 'reach-'));
  const authority = issueCertificate({ name: 'Example CA', authority: true });
  const write = (name: string, text: string): string => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  const ca = write('ca.crt', authority.certificate);
  const issued = (name: string, days = 1): Issued =>
    issueCertificate({ name, issuer: authority, ips: ['127.0.0.1'], days });
  const tlsServer = (own: Issued, requestCert = false): Promise<string> => {
    const authorities = { ca: authority.certificate, requestCert, rejectUnauthorized: requestCert };
    const pair = { cert: own.certificate, key: own.privateKey };
    const server = createTlsServer({ ...pair, ...authorities, ALPNProtocols: ['h2'] }, (socket) =>
      socket.on('error', () => undefined).resume(),
    );
    server.on('tlsClientError', () => undefined);
    return listening(server);
  };

  after(() => {
    for (const server of servers) server.close();
    rmSync(directory, { recursive: true });
  });

  it('says whether anything listens', async () => {
    const address = await listening(createServer((socket) => socket.resume()));
    expect(await typed('--endpoint', address)).to.deep.equal({
      code: 0,
      out: `${address}: accepts connections\n`,
      err: '',
    });
    const nothing = await typed('--endpoint', '127.0.0.1:1');
    expect(nothing).to.deep.equal({
      code: 1,
      out: '',
      err: '127.0.0.1:1: connection refused: nothing listens there (ECONNREFUSED)\n',
    });
    expect((await typed('--endpoint', 'unix:/run/cp.sock')).code).to.equal(2);
  });

  it('says where TLS is asked of a port without it', async () => {
    const plain = await listening(
      createServer((socket) => socket.on('error', () => undefined).end('no TLS here')),
    );
    const { code, err } = await typed('--endpoint', plain, '--tls');
    expect(code).to.equal(1);
    expect(err).to.include('one end of the connection speaks TLS, and the other does not');
  });

  it('shows the certificate, and says whether it is trusted', async () => {
    const good = await typed('--endpoint', await tlsServer(issued('cp')), '--ca', ca);
    expect(good.out).to.match(
      /^subject: CN=cp\nissuer: {2}CN=Example CA\nnames: {3}IP Address:127\.0\.0\.1\nvalid: {3}/,
    );
    expect(good.out).to.match(
      /: accepts connections with TLSv1\.3 and HTTP\/2; its certificate is trusted\n$/,
    );
    expect(good.code).to.equal(0);

    const expired = await typed('--endpoint', await tlsServer(issued('old', -1)), '--ca', ca);
    expect(expired.err).to.match(
      /: the certificate is not trusted: the certificate has expired \(CERT_HAS_EXPIRED\)\n$/,
    );
    expect(expired.out).to.match(/^subject: CN=old\n/);
    expect(expired.code).to.equal(1);

    const foreign = await typed('--endpoint', await tlsServer(issued('cp')), '--tls');
    expect(foreign.err).to.match(/not trusted: .* not trusted \(/);
    const other = await typed(
      '--endpoint',
      await tlsServer(issued('cp')),
      '--ca',
      ca,
      '--server-name',
      'a.test',
    );
    expect(other.err).to.match(/not trusted: the certificate is for another name/);
  });

  it('says whether the other end takes the client certificate', async () => {
    const address = await tlsServer(issued('cp'), true);
    const flags = (own: Issued): readonly string[] => [
      ...[
        '--cert',
        write(`${own.name}.crt`, own.certificate),
        '--key',
        write(`${own.name}.key`, own.privateKey),
      ],
    ];
    const good = await typed('--endpoint', address, '--ca', ca, ...flags(issued('relay')));
    expect(good.code, good.err).to.equal(0);
    const reasons = [
      [flags(issued('late', -1)), /: the connection ends after the TLS handshake: [^;]+\n$/],
      [[], /; if it requires a client certificate, give --cert and --key\n$/],
    ] as const;
    for (const [bad, why] of reasons) {
      const refused = await typed('--endpoint', address, '--ca', ca, ...bad);
      expect(refused.err).to.include('the connection ends after the TLS handshake: ');
      expect(refused.err).to.match(why);
      expect(refused.code).to.equal(1);
    }
  });

  it('names a file that cannot be read', async () => {
    const { code, err } = await typed('--endpoint', '127.0.0.1:1', '--ca', join(directory, 'none'));
    expect(err).to.match(/^127\.0\.0\.1:1: --ca \S+none cannot be read: there is no such file/);
    expect(code).to.equal(1);
  });
});
