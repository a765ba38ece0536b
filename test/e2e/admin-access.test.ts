import { request as httpRequest, type OutgoingHttpHeaders, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { networkInterfaces } from 'node:os';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { PemFiles } from './support/pem-files.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const stranger = issueCertificate({ name: 'stranger', authority: true });
const server = issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'] });
const operator = issueCertificate({ name: 'operator', issuer: authority });

const release = '/distributary.admin.v1.AdminService/ReleaseRemovals';
const status = '/distributary.admin.v1.AdminService/Status';
const logLevel = '/distributary.admin.v1.AdminService/SetLogLevel';
const json = { 'content-type': 'application/json' };

interface Answer {
  readonly status: number | string;
  readonly body: string;
}

/** `path` goes into the request line as it is; a status of words: the connection failed. */
function ask(
  address: string,
  path: string,
  options: RequestOptions = {},
  body = '',
  tls?: object,
): Promise<Answer> {
  const colon = address.lastIndexOf(':');
  const target = {
    host: address.slice(0, colon).replace(/^\[|\]$/g, ''),
    port: Number(address.slice(colon + 1)),
  };
  return new Promise((resolve) => {
    const all = { ...target, path, agent: false, ...options };
    const request = tls === undefined ? httpRequest(all) : httpsRequest({ ...all, ...tls });
    request.on('error', (error) => resolve({ status: error.message, body: '' }));
    request.on('response', (response) => {
      void text(response).then((read) => resolve({ status: response.statusCode ?? 0, body: read }));
    });
    request.end(body);
  });
}

const post = (headers: OutgoingHttpHeaders = {}): RequestOptions => ({
  method: 'POST',
  headers: { ...json, ...headers },
});

describe('who may ask the admin listener', () => {
  let resources: ResourceFiles;
  let pem: PemFiles;
  let relay: RelayProcess;
  /** Its plaintext listeners are on every interface. */
  let exposed: RelayProcess;

  before(async () => {
    pem = new PemFiles();
    resources = new ResourceFiles();
    resources.write('cds', new Map([['shop', 'x']]));
    relay = await start();
    exposed = await RelayProcess.start(onEveryInterface());
  });
  after(async () => {
    await exposed?.[Symbol.asyncDispose]();
    await relay?.[Symbol.asyncDispose]();
    pem?.[Symbol.dispose]();
    resources?.[Symbol.dispose]();
  });

  const start = (admin: object = {}): Promise<RelayProcess> =>
    RelayProcess.start({ upstreams: [resources.upstream], admin });
  const onEveryInterface = (xds: object = {}): RelayConfig => ({
    upstreams: [resources.upstream],
    admin: { address: '0.0.0.0:0' },
    xds: { address: '0.0.0.0:0', ...xds },
  });
  const reload = (admin: object): Promise<void> =>
    relay.reconfigure({ upstreams: [resources.upstream], admin });
  const named = (host: string): RequestOptions => ({ headers: { host } });
  const releasing = JSON.stringify({ upstream: 'files' });

  it('DNS rebinding: a page of another name reads nothing and changes nothing', async () => {
    await reload({ hosts: ['relay.example.com', '*.relays.svc', '10.9.8.7'] });
    const { admin } = relay;
    const port = admin.split(':')[1];
    for (const host of [
      `evil.example.com:${port}`,
      'evil.example.com',
      'localhost.evil.example.com',
      '127.0.0.1.evil.example.com',
      'relay.example.com.evil.example.com',
      'relays.svc',
      'localhost@evil.example.com',
      '192.0.2.1',
      '[2001:db8::1]',
      '0x7f.1',
    ]) {
      for (const path of ['/', '/config_dump', '/nothing']) {
        const { status: code, body } = await ask(admin, path, named(host));
        expect([code, JSON.parse(body)], `${host} ${path}`).to.deep.include(421);
        expect(JSON.parse(body), host).to.include({ code: 'permission_denied' });
        expect(body)
          .to.contain('admin.hosts')
          .and.to.contain('localhost')
          .and.to.contain('relay.example.com');
      }
      const rpc = await ask(admin, release, post({ host, origin: `http://${host}` }), releasing);
      expect(rpc.status, host).to.equal(421);
    }
    for (const host of [
      `127.0.0.1:${port}`,
      'localhost',
      'LOCALHOST.:1234',
      '127.8.9.10',
      '[::1]:80',
      '[0:0:0:0:0:0:0:1]',
      'relay.example.com',
      'Relay.Example.Com.:443',
      'relay-1.relays.svc',
      '10.9.8.7:19000',
    ])
      expect((await ask(admin, '/config_dump', named(host))).status, host).to.equal(200);
  });

  it('DNS rebinding by the request line of a proxy, or by a second Host', async () => {
    const { admin } = relay;
    expect((await ask(admin, 'http://evil.example.com/config_dump', named(admin))).status).to.equal(421);
    expect((await ask(admin, `http://${admin}/config_dump`, named('evil.example.com'))).status).to.equal(421);
    expect((await ask(admin, `http://${admin}/config_dump`, named(admin))).status).to.equal(200);
    const twice = { headers: ['Host', admin, 'Host', 'evil.example.com'] };
    expect((await ask(admin, '/config_dump', twice)).status).to.be.oneOf([400, 421]);
  });

  it('bound to every interface: its own addresses are served; probes and scrapes by any address, not by any name', async () => {
    await eventually(async () => expect((await exposed.get('/ready')).status).to.equal(200));
    const own = Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
    const admin = exposed.admin.replace('0.0.0.0', own ?? '127.0.0.1');
    for (const path of ['/healthz', '/ready', '/metrics', '/', '/config_dump'])
      expect((await ask(admin, path, named(admin))).status, path).to.equal(200);
    // The address that a NAT has for it.
    for (const path of ['/healthz', '/ready', '/metrics']) {
      expect((await ask(admin, path, named('203.0.113.9:30900'))).status, path).to.equal(200);
      expect((await ask(admin, path, named('relay.example.com'))).status, path).to.equal(421);
    }
    expect((await ask(admin, '/config_dump', named('203.0.113.9:30900'))).status).to.equal(421);
  });

  it('admin.hosts and admin.read_only take effect at once', async () => {
    await reload({});
    const at = named('relay.example.com');
    expect((await ask(relay.admin, '/', at)).status).to.equal(421);
    expect((await ask(relay.admin, release, post(), releasing)).status).to.equal(200);
    await reload({ hosts: ['relay.example.com'], read_only: true });
    expect((await ask(relay.admin, '/', at)).status).to.equal(200);
    for (const [method, body] of [
      [release, releasing],
      [logLevel, JSON.stringify({ level: 'debug' })],
    ] as const) {
      const refused = await ask(relay.admin, method, post(), body);
      expect(refused.status).to.equal(403);
      expect(JSON.parse(refused.body)).to.include({ code: 'permission_denied' });
      expect(refused.body).to.contain('admin.read_only');
    }
    expect((await ask(relay.admin, status, post(), '{}')).status).to.equal(200);
    await reload({});
  });

  it("a web page's request to another origin changes nothing: by Origin, Sec-Fetch-Site, content type, method", async () => {
    const { admin } = relay;
    for (const headers of [
      { origin: 'http://evil.example.com' },
      { origin: 'http://127.0.0.1:1' },
      { origin: 'null' },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
    ]) {
      const { status: code, body } = await ask(admin, release, post(headers), releasing);
      expect(code, JSON.stringify(headers)).to.equal(403);
      expect(JSON.parse(body)).to.include({ code: 'permission_denied' });
    }
    // What a form, or fetch without a preflight, may send.
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])
      expect((await ask(admin, release, post({ 'content-type': type }), releasing)).status).to.equal(415);
    const preflight = await ask(admin, release, {
      method: 'OPTIONS',
      headers: { 'access-control-request-method': 'POST', origin: `http://${admin}` },
    });
    expect(preflight.status).to.equal(405);
    const query = `?connect=v1&encoding=json&message=${encodeURIComponent(releasing)}`;
    for (const method of ['GET', 'HEAD', 'PUT', 'DELETE'])
      expect((await ask(admin, release + query, { method })).status, method).to.equal(405);
    for (const headers of [{}, { origin: `http://${admin}`, 'sec-fetch-site': 'same-origin' }])
      expect((await ask(admin, release, post(headers), releasing)).status).to.equal(200);
  });

  it('a plaintext port that everybody can read is said in the log, on the page and in Status, until it has rules', async () => {
    const admin = exposed.admin.replace('0.0.0.0', '127.0.0.1');
    const said = (text: string): boolean =>
      /xds\.address: 0\.0\.0\.0:0 is plaintext and has no authorization/.test(text);
    await eventually(() => {
      const logged = exposed.log.filter(({ level }) => level === 'warn');
      expect(logged.filter(({ warnings }) => said(JSON.stringify(warnings)))).to.have.length(1);
    });
    expect(said((await ask(admin, '/')).body)).to.equal(true);
    expect(said((await ask(admin, status, post(), '{}')).body)).to.equal(true);
    exposed.configure(onEveryInterface({ authorization: { rules: [{ types: ['cds'], allow: true }] } }));
    // The page has the last lines of the log, too.
    await eventually(async () => expect(said((await ask(admin, status, post(), '{}')).body)).to.equal(false));
  });

  describe('with TLS', () => {
    const trusted = { ca: authority.certificate };
    const shows = (own: Issued): object => ({ ...trusted, cert: own.certificate, key: own.privateKey });
    let ca: string;
    /** With a ca, and without. */
    let strict: RelayProcess;
    let open: RelayProcess;

    before(async () => {
      ca = pem.bundle('ca.crt', [authority]);
      strict = await start({ tls: { ...pem.identity('admin', server), ca } });
      open = await start({ tls: pem.identity('admin', server) });
    });
    after(async () => {
      await open?.[Symbol.asyncDispose]();
      await strict?.[Symbol.asyncDispose]();
    });

    it('a ca lets in nobody without a certificate of it, and those change things', async () => {
      const own = issueCertificate({ name: 'operator', issuer: stranger });
      for (const tls of [trusted, shows(own)]) {
        for (const path of ['/healthz', '/metrics', status])
          expect((await ask(strict.admin, path, {}, '', tls)).status, path).to.be.a('string');
      }
      expect((await ask(strict.admin, '/healthz', {}, '', shows(operator))).status).to.equal(200);
      expect((await ask(strict.admin, release, post(), releasing, shows(operator))).status).to.equal(200);
    });

    it('without a ca nobody can show who they are: everything can be read, nothing changed', async () => {
      expect((await ask(open.admin, status, post(), '{}', trusted)).status).to.equal(200);
      for (const tls of [trusted, shows(operator)]) {
        const refused = await ask(open.admin, release, post(), releasing, tls);
        expect(refused.status).to.equal(403);
        expect(refused.body).to.contain('client certificate').and.to.contain('admin.tls.ca');
      }
    });

    it('CBC ciphers are refused', async () => {
      const offer = (ciphers: string) => ({ ...trusted, ciphers, maxVersion: 'TLSv1.2' });
      expect((await ask(open.admin, '/healthz', {}, '', offer('ECDHE-ECDSA-AES128-SHA256'))).status).to.match(
        /handshake failure/,
      );
      const aead = await ask(open.admin, '/healthz', {}, '', offer('ECDHE-ECDSA-AES128-GCM-SHA256'));
      expect(aead.status).to.equal(200);
    });

    it('the commands show their certificate, and say what is missing without it', async () => {
      const { certificate, private_key } = pem.identity('operator', operator);
      const url = `https://${strict.admin}`;
      const command = (...argv: readonly string[]) => run(...argv, '--admin', url);
      const identity = ['--cert', certificate, '--key', private_key, '--ca', ca];
      const shown = await command('status', ...identity);
      expect([shown.code, shown.out]).to.deep.include(0);
      expect(shown.out).to.contain('files');
      const asked = await command('explain', '--type', 'cds', '--name', 'nothing', ...identity);
      expect(asked.out).to.contain('nothing is known about it');
      expect((await command('clients', ...identity)).out).to.equal('no client is connected');
      expect((await command('resources', ...identity)).code).to.equal(0);
      const missing = await command('get', '--type', 'cds', '--name', 'nothing', ...identity);
      expect([missing.code, missing.out]).to.deep.equal([
        1,
        'no cds "nothing" is cached: distributary resources lists what is',
      ]);
      const anonymous = await command('status', '--ca', ca);
      expect(anonymous.code).to.equal(1);
      expect(anonymous.out).to.match(/requires a client certificate.*give --cert and --key/);
      const untrusting = await command('status', ...identity.slice(0, 4));
      expect(untrusting.out).to.match(/not trusted|--ca/);
      const half = await command('status', '--cert', certificate);
      expect([half.code, half.out.split('\n')[0]]).to.deep.equal([
        2,
        '--cert and --key belong together: --key is missing',
      ]);
    });
  });
});
