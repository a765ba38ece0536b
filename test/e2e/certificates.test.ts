import { execFileSync } from 'node:child_process';
import { ServerCredentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { z } from 'zod';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { PemFiles } from './support/pem-files.ts';
import { everywhere, firing, isOver } from './support/problems.ts';
import { outcome } from './support/process.ts';
import { distributary, RelayProcess, upstream } from './support/relay.ts';
import { notTyped, terminalFor, typeRunbook } from './support/runbook.ts';
import { XdsClient } from './support/xds-client.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({ name: 'server', issuer: authority, ips: ['127.0.0.1'] });
/** Each has issued one certificate of the relay: a control plane that trusts one of them knows which it was shown. */
const issuers = ['first', 'second', 'third'].map((name) => issueCertificate({ name, authority: true }));
const [first, second, third] = issuers.map((issuer) =>
  issueCertificate({ name: 'relay', issuer, dns: ['relay.test'], days: 30 }),
);
if (first === undefined || second === undefined || third === undefined) throw new Error('there are three');
const [issuerOfFirst, issuerOfSecond] = issuers;
if (issuerOfFirst === undefined || issuerOfSecond === undefined) throw new Error('there are three');
const expired = issueCertificate({ name: 'relay', issuer: issuerOfFirst, dns: ['relay.test'], days: -1 });

/** It asks for no certificate. */
const presenting = ({ certificate, privateKey }: Issued): ServerCredentials =>
  ServerCredentials.createSsl(null, [
    { private_key: Buffer.from(privateKey), cert_chain: Buffer.from(certificate) },
  ]);
const toType = z.object({
  problems: z.array(z.object({ kind: z.string(), commands: z.array(z.string()) })),
});

const REFUSED = 'a new certificate is refused';
const EXPIRED = 'the certificate has expired';

/** It demands a certificate of this issuer. */
const demanding = (issuer: Issued): ServerCredentials =>
  ServerCredentials.createSsl(
    Buffer.from(issuer.certificate),
    [{ private_key: Buffer.from(server.privateKey), cert_chain: Buffer.from(server.certificate) }],
    true,
  );

describe('certificates of the relay', () => {
  let pem: PemFiles;
  let plane: ControlPlane;
  let version = 0;

  beforeEach(async () => {
    pem = new PemFiles();
    pem.write('ca.crt', authority.certificate);
    plane = new ControlPlane();
    plane.answer = (stream, asked) => {
      if (asked.responseNonce === '') stream.send(typeOf('cds'), String(++version), `shop:${version}`);
    };
    await plane.listen(0, demanding(issuerOfFirst));
  });

  afterEach(() => {
    plane?.kill();
    pem?.[Symbol.dispose]();
  });

  const central = (more: object = {}, tls: object = pem.identity('relay', first)): object => {
    const backoff = { initial: '50ms', max: '100ms' };
    const ads = { tls: { ca: pem.path('ca.crt'), ...tls }, backoff };
    return { ...upstream(`127.0.0.1:${plane.port}`, 'DELTA', ads), ...more };
  };
  const ofCentral = 'upstream="central"';
  const said = (relay: RelayProcess, text: string) => relay.log.filter(({ message }) => message === text);
  const sample = async (relay: RelayProcess, name: string, labels: string): Promise<number> => {
    const { body } = await relay.get('/metrics');
    const line = body
      .split('\n')
      .find((one) => one.startsWith(`distributary_certificate_${name}{${labels}} `));
    return line === undefined ? Number.NaN : Number(line.slice(line.lastIndexOf(' ')));
  };
  /** The control plane is another one, which demands a certificate of this issuer: a client gets what only it has. */
  const reconnects = async (client: XdsClient, issuer: Issued): Promise<void> => {
    const before = client.of('cds').length;
    plane.kill();
    await plane.listen(plane.port, demanding(issuer));
    await eventually(() => expect(client.of('cds').length).to.be.greaterThan(before));
  };

  it('of an upstream: the next connection has a new pair, and the one before while the new files are bad', async () => {
    await using relay = await RelayProcess.start({ upstreams: [central()] });
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('cds');
    await client.gets('cds');
    expect(await sample(relay, 'reloads_total', `${ofCentral},result="success"`)).to.equal(0);
    expect(await sample(relay, 'reloads_total', `${ofCentral},result="refused"`)).to.equal(0);

    pem.identity('relay', second);
    await eventually(async () =>
      expect(await sample(relay, 'reloads_total', `${ofCentral},result="success"`)).to.equal(1),
    );
    await reconnects(client, issuerOfSecond);

    const refusedBefore = await sample(relay, 'reloads_total', `${ofCentral},result="refused"`);
    pem.write('relay.crt', third.certificate);
    expect(await everywhere(relay, 'certificate_refused', 1)).to.match(
      /^The new client certificate for upstream \S+ is refused: .*does not belong to the certificate.*; the previous certificate stays in use$/,
    );
    expect(await firing(relay, 'certificate_refused')).to.deep.equal([
      `DistributaryCertificateRefused ${ofCentral}`,
    ]);
    expect(await sample(relay, 'reloads_total', `${ofCentral},result="refused"`)).to.equal(refusedBefore + 1);
    await reconnects(client, issuerOfSecond);
    // The files were looked at again meanwhile, at the latest by the reconnect.
    pem.overwrite('relay.crt', second.certificate.slice(0, 300));
    await eventually(() => {
      const errors = said(relay, REFUSED).map(({ error }) => String(error));
      expect(errors.at(-1)).to.include('cut off');
      expect(errors).to.have.length(new Set(errors).size);
    });
    await reconnects(client, issuerOfSecond);

    // What is in force comes back: nothing is reloaded, and nothing is refused any more.
    pem.write('relay.crt', second.certificate);
    await isOver(relay, 'certificate_refused');
    expect(await firing(relay, 'certificate_refused')).to.deep.equal([]);
    expect(await sample(relay, 'reloads_total', `${ofCentral},result="success"`)).to.equal(1);
  });

  it('an expired pair that takes the place of a valid one is taken, with a warning, as at the start', async () => {
    await using relay = await RelayProcess.start({
      upstreams: [central()],
      xds: { address: '127.0.0.1:0', tls: pem.identity('xds', second) },
    });
    for (const name of ['relay', 'xds']) pem.identity(name, expired);
    for (const labels of ['listener="xds"', ofCentral]) {
      await eventually(async () =>
        expect(await sample(relay, 'expiry_timestamp_seconds', labels)).to.be.below(Date.now() / 1000),
      );
      expect(await sample(relay, 'last_reload_successful', labels)).to.equal(1);
    }
    await eventually(() =>
      expect(
        said(relay, EXPIRED).map((line) => [line['level'], line['listener'] ?? line['upstream']]),
      ).to.have.deep.members([
        ['warn', 'xds'],
        ['warn', 'central'],
      ]),
    );
    expect(await everywhere(relay, 'certificate_expires', 2)).to.match(/ has expired: /);
  });

  it('of an upstream with a ca alone, a refused file is called what it is', async () => {
    plane.kill();
    await plane.listen(0, presenting(server));
    await using relay = await RelayProcess.start({ upstreams: [central({}, {})] });
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('cds');
    await client.gets('cds');
    pem.write('ca.crt', authority.certificate.slice(0, 300));
    expect(await everywhere(relay, 'certificate_refused', 1)).to.match(
      /^The new CA file for upstream central is refused: .*cut off.*; the previous file stays in use$/,
    );
    await relay.says(/^a new CA file is refused$/);
    pem.write('ca.crt', authority.certificate);
    await isOver(relay, 'certificate_refused');
  });

  it('a control plane whose certificate has expired: what is to be typed shows the certificate, and why it is not trusted', async () => {
    const tooOld = issueCertificate({
      name: 'old control plane',
      issuer: authority,
      ips: ['127.0.0.1'],
      days: -1,
    });
    plane.kill();
    await plane.listen(0, presenting(tooOld));
    await using relay = await RelayProcess.start({ upstreams: [central()] });
    const found = await everywhere(relay, 'upstream_away', 2, /expired/);
    expect(found).to.match(
      /^Upstream central is unreachable: .*the control plane's certificate has expired$/,
    );
    const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
    const { problems } = toType.parse(JSON.parse(body));
    const [command = ''] = problems.find(({ kind }) => kind === 'upstream_away')?.commands ?? [];
    await using terminal = await terminalFor(relay.admin);
    const { printed } = await terminal.run(`{ ${command}; } 2>&1`);
    expect(printed).to.match(/^subject: CN=old control plane$/m);
    expect(printed).to.match(/: the certificate is not trusted: the certificate has expired /);
  });

  it('expired, here and upstream: log, page, status, /ready, metric and alert say so, and validate refuses it', async () => {
    const config = central({}, pem.identity('relay', expired));
    const own = pem.identity('xds', expired);
    const short = issueCertificate({ name: 'rest', ips: ['127.0.0.1'], days: 4 / 86_400 });
    const whole = {
      upstreams: [config],
      xds: { address: '127.0.0.1:0', tls: own },
      rest: { address: '127.0.0.1:0', tls: pem.identity('rest', short) },
    };
    const file = pem.write('relay.json', JSON.stringify(whole));
    await using relay = await RelayProcess.start(whole);
    expect(await everywhere(relay, 'certificate_expires', 2)).to.match(
      /^The (certificate of|client certificate for) \S+.* has expired: /,
    );
    const { code, output } = await outcome(distributary('validate', '--config', file));
    expect(code).to.equal(2);
    expect(output).to.match(/xds\.tls\.certificate: .*xds\.crt has expired/);
    expect(output).to.match(/upstreams\[0\]\.ads\.tls\.certificate: .*relay\.crt has expired/);
    for (const labels of ['listener="xds"', ofCentral])
      expect(await sample(relay, 'expiry_timestamp_seconds', labels)).to.be.below(Date.now() / 1000);
    expect(await firing(relay, 'certificate_expires')).to.include.members([
      'DistributaryCertificateEnds listener="xds"',
      `DistributaryCertificateEnds ${ofCentral}`,
    ]);
    // That of rest expires while it is in force.
    await eventually(() =>
      expect(
        said(relay, EXPIRED).map((line) => [line['level'], line['listener'] ?? line['upstream']]),
      ).to.have.deep.members([
        ['warn', 'xds'],
        ['warn', 'central'],
        ['warn', 'rest'],
      ]),
    );
    expect((await relay.get('/ready')).status).to.equal(503);

    await using terminal = await terminalFor(relay.admin);
    await typeRunbook(terminal, {
      runbook: 'certificates',
      set: { CERTIFICATE: own.certificate, KEY: own.private_key, FILE: file, LISTENER: relay.xds },
      fails: /validate|reach/,
      mends: () => {
        for (const name of ['relay', 'xds', 'rest']) pem.identity(name, first);
      },
    });
    expect(notTyped()).to.deep.equal([]);
    await isOver(relay, 'certificate_expires');
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    expect(await firing(relay, 'certificate_expires')).to.deep.equal([]);
  });

  it('a pipe is no file: refused, later too, and the relay still ends by itself', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    const config = { upstreams: [files.upstream], xds: { tls: pem.identity('relay', first) } };
    await using relay = await RelayProcess.start(config);
    execFileSync('mkfifo', [pem.path('pipe')]);
    execFileSync('mv', [pem.path('pipe'), pem.path('relay.key')]);
    const [refused] = await relay.says(/^a new certificate is refused$/);
    expect(refused?.['error']).to.match(/relay\.key: it is no regular file: pipes and devices are not read$/);

    const file = pem.write('relay.json', JSON.stringify({ node: { id: 'relay' }, ...config }));
    const { code, output } = await outcome(distributary('validate', '--config', file));
    expect(output).to.match(/xds\.tls\.private_key: .*relay\.key cannot be read: it is no regular file/);
    expect(code).to.equal(2);
    expect(await relay.stop()).to.equal(0);
  });

  it('of siblings: followed while none is asked, and not any more when a reload takes them away', async () => {
    const siblings = { address: '127.0.0.1:1', tls: pem.identity('sibling', second) };
    await using relay = await RelayProcess.start({ upstreams: [central({ siblings })] });
    const ofSiblings = `${ofCentral},siblings="true"`;
    const daysLeft = async (of: string): Promise<number> =>
      Math.round(((await sample(relay, 'expiry_timestamp_seconds', of)) - Date.now() / 1000) / 86_400);
    await eventually(async () => expect(await daysLeft(ofSiblings)).to.equal(30));
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    pem.identity('sibling', issueCertificate({ name: 'sibling', days: 3, since: 30 }));
    expect(await everywhere(relay, 'certificate_expires', 1)).to.match(
      /^The client certificate for the siblings of \S+ expires within 7 d: /,
    );
    expect(await firing(relay, 'certificate_expires')).to.deep.equal([
      `DistributaryCertificateEndsSoon ${ofSiblings}`,
    ]);
    relay.configure({ upstreams: [central()] });
    await isOver(relay, 'certificate_expires');
    expect(await daysLeft(ofSiblings)).to.be.NaN;
    expect(await daysLeft(ofCentral)).to.equal(30);
  });

  it('of a listener of workers: the relay has it when all have it, and each reload counts', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['a', '1']]));
    const workers = 2;
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      xds: { tls: pem.identity('xds', first) },
      workers,
    });
    const labels = 'listener="xds"';
    await eventually(async () => expect(await sample(relay, 'last_reload_successful', labels)).to.equal(1));
    pem.identity('xds', second);
    await eventually(async () =>
      expect(await sample(relay, 'reloads_total', `${labels},result="success"`)).to.equal(workers),
    );
    pem.write('xds.key', third.privateKey);
    expect(await everywhere(relay, 'certificate_refused', 1)).to.match(
      /^The new certificate of listener xds is refused: /,
    );
    await eventually(async () =>
      expect(await sample(relay, 'reloads_total', `${labels},result="refused"`)).to.be.at.least(workers),
    );
    expect(await sample(relay, 'last_reload_successful', labels)).to.equal(0);
    expect(await firing(relay, 'certificate_refused')).to.deep.equal([
      `DistributaryCertificateRefused ${labels}`,
    ]);
    pem.write('xds.key', second.privateKey);
    await isOver(relay, 'certificate_refused');
    await eventually(async () => expect(await sample(relay, 'last_reload_successful', labels)).to.equal(1));
  });
});
