import { randomBytes } from 'node:crypto';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { ownPort } from '../support/ports.ts';
import { type TlsClientOptions, tlsVersions, type Visit, visit } from '../support/tls-clients.ts';
import { Envoy } from './support/envoy.ts';
import { envoyBinary } from './support/envoy-binary.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { PemFiles } from './support/pem-files.ts';
import { signalTo } from './support/process.ts';
import { RelayProcess } from './support/relay.ts';
import { need } from './support/skip.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const middle = issueCertificate({ name: 'middle', authority: true, issuer: authority });
const server = (key?: Issued): Issued =>
  issueCertificate({
    name: 'relay',
    issuer: authority,
    dns: ['localhost'],
    ips: ['127.0.0.1'],
    ...(key === undefined ? {} : { key }),
  });
const first = server();
const client = issueCertificate({ name: 'client', issuer: authority, uris: ['spiffe://example.com/a'] });

describe('TLS sessions, on the real process', () => {
  let files: ResourceFiles;
  let pem: PemFiles;
  let directory: TemporaryDirectory;

  beforeEach(() => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    pem = new PemFiles();
    pem.identity('relay', first);
    pem.write('ca.crt', authority.certificate);
    directory = temporaryDirectory();
  });
  afterEach(() => {
    for (const each of [files, pem, directory]) each?.[Symbol.dispose]();
  });

  const start = (
    tls: object = {},
    { persisted = false, ...more }: { persisted?: boolean; readonly [key: string]: unknown } = {},
  ): Promise<RelayProcess> =>
    RelayProcess.start({
      upstreams: [files.upstream],
      xds: {
        tls: {
          certificate: pem.path('relay.crt'),
          private_key: pem.path('relay.key'),
          ca: pem.path('ca.crt'),
          require_client_certificate: true,
          ...tls,
        },
      },
      ...(persisted && { cache: { persistence: { path: join(directory.path, 'kept') } } }),
      ...more,
    });
  const asks = (relay: RelayProcess, more: Omit<TlsClientOptions, 'ca'>): Promise<Visit> =>
    visit(relay.xds, { ca: authority, own: client, ...more });
  const handshakes = (relay: RelayProcess, kind: 'full' | 'resumed'): Promise<number> =>
    relay.metric('downstream_tls_handshakes_total', `kind="${kind}"`);
  /** A ticket of each version of TLS. */
  const tickets = async (relay: RelayProcess): Promise<readonly (Buffer | undefined)[]> => {
    const all = [];
    for (const version of tlsVersions) all.push((await asks(relay, { version })).session);
    return all;
  };
  const resumed = async (relay: RelayProcess, all: readonly (Buffer | undefined)[]): Promise<boolean[]> => {
    const how = [];
    for (const [index, version] of tlsVersions.entries()) {
      const { resumed, served } = await asks(relay, { version, session: all[index] });
      how.push(resumed);
      expect(served).to.equal(true);
    }
    return how;
  };

  for (const workers of cases(0, 2)) {
    it(`are resumed after a restart with another certificate, and not with another key (${workers} workers)`, async () => {
      const before = await start({}, { workers, persisted: true });
      const all = await tickets(before);
      expect(await handshakes(before, 'full')).to.equal(2);
      pem.identity('relay', server(first));
      await before.stop();

      const after = await start({}, { workers, persisted: true });
      expect(await resumed(after, all)).to.deep.equal([true, true]);
      expect([await handshakes(after, 'resumed'), await handshakes(after, 'full')]).to.deep.equal([2, 0]);
      await after.stop();

      pem.identity('relay', server());
      await using other = await start({}, { workers, persisted: true });
      await other.says(/^TLS sessions of before the restart are not resumed/);
      expect(await resumed(other, all)).to.deep.equal([false, false]);
    });
  }

  it('are resumed by the other workers, those of intermediates too, and by the one that replaces a worker', async () => {
    await using relay = await start({}, { workers: 2 });
    const all = await tickets(relay);
    for (let round = 0; round < 2; round++) expect(await resumed(relay, all)).to.deep.equal([true, true]);

    const own = issueCertificate({ name: 'client', issuer: middle, uris: ['spiffe://example.com/b'] });
    const below = { own, chain: [middle], version: 'TLSv1.2' } as const;
    const { session } = await asks(relay, below);
    let host = 2;
    // The other worker hears of the intermediate a moment later. Where it has not, the address is not resumed for a while.
    await eventually(async () => {
      const from = `127.0.0.${host++}`;
      for (let turn = 0; turn < 4; turn++) {
        const visited = await asks(relay, { ...below, session, from });
        expect([visited.resumed, visited.served]).to.deep.equal([true, true]);
      }
    });

    const [, victim = 0] = await relay.pids();
    signalTo(victim, 'SIGKILL');
    await eventually(async () => {
      const pids = await relay.pids();
      expect(pids).to.have.length(3).and.to.not.include(victim).and.to.not.include(0);
    });
    for (let turn = 0; turn < 4; turn++) {
      const visited = await asks(relay, { ...below, session, from: '127.0.1.1' });
      expect([visited.resumed, visited.served]).to.deep.equal([true, true]);
    }
  });

  it('are resumed by replicas with the same secret file, until it is replaced', async () => {
    const secrets = ['one', 'two'].map((name) => join(directory.path, name));
    const secret = randomBytes(32);
    const relays = new AsyncDisposableStack();
    await using _relays = relays;
    const replicas: RelayProcess[] = [];
    for (const file of secrets) {
      writeFileSync(file, secret);
      replicas.push(relays.use(await start({ session_ticket_secret_file: file })));
    }
    const [one, two] = replicas;
    if (one === undefined || two === undefined) throw new Error('no replicas');
    const all = await tickets(one);
    expect(await resumed(two, all)).to.deep.equal([true, true]);
    // At once, as the relay reads at any time.
    const replace = (content: string | Buffer): void => {
      writeFileSync(join(directory.path, 'next'), content);
      renameSync(join(directory.path, 'next'), secrets[1] ?? '');
    };
    replace(randomBytes(32));
    await two.says(/^certificate reloaded/);
    expect(await resumed(two, all)).to.deep.equal([false, false]);
    replace('too short');
    const [refused] = await two.says(/^a new certificate is refused/);
    expect(refused?.['error']).to.contain('session_ticket_secret_file has 9 bytes');
  });

  it('session_tickets: false: no ticket and no resumption', async () => {
    await using relay = await start({ session_tickets: false });
    expect(await tickets(relay)).to.deep.equal([undefined, undefined]);
  });

  it('a real Envoy resumes its session after a restart', async function () {
    const binary = await need(this, envoyBinary());
    const port = await ownPort();
    const address = `127.0.0.1:${port}`;
    const tls = {
      certificate: pem.path('relay.crt'),
      private_key: pem.path('relay.key'),
      ca: pem.path('ca.crt'),
      require_client_certificate: true,
    };
    const config = { xds: { address, tls }, persisted: true };
    const before = await start({}, config);
    const { certificate, private_key } = pem.identity('envoy', client);
    await using envoy = await Envoy.start(binary, {
      xds: address,
      transport: 'ads-delta',
      transportSocket: {
        name: 'tls',
        typed_config: {
          '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
          sni: 'localhost',
          common_tls_context: {
            tls_certificates: [
              { certificate_chain: { filename: certificate }, private_key: { filename: private_key } },
            ],
            validation_context: { trusted_ca: { filename: pem.path('ca.crt') } },
          },
        },
      },
    });
    await eventually(async () => expect(await handshakes(before, 'full')).to.equal(1));
    await before.stop();
    await using after = await start({}, config);
    await eventually(async () => expect(await handshakes(after, 'resumed')).to.equal(1), { timeout: 60_000 });
    expect(await handshakes(after, 'full')).to.equal(0);
    expect(await envoy.stat('cluster.xds.ssl.session_reused')).to.equal(1);
    await eventually(async () =>
      expect((await after.clients()).map(({ node }) => node.id)).to.deep.equal(['envoy']),
    );
  });
});
