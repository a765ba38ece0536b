import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { DiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { get } from './support/http.ts';
import { type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { RawConnection } from './support/raw-http2.ts';
import { RelayProcess } from './support/relay.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'] });
const firstRequest = frameOf(
  toBinary(
    DiscoveryRequestSchema,
    create(DiscoveryRequestSchema, { node: { id: 'streaming' }, typeUrl: typeOf('cds') }),
  ),
);
/** Long enough for a slow machine to connect with it. */
const lifetimeMs = 8000;

const days = (milliseconds: number): number => milliseconds / 86_400_000;
const client = (name: string, milliseconds: number): Issued =>
  issueCertificate({
    name,
    issuer: authority,
    uris: [`spiffe://example.com/${name}`],
    days: days(milliseconds),
  });

/** A connection, and the TLS session that it can be resumed with. */
async function connected(
  address: string,
  who: Issued,
  version: 'TLSv1.2' | 'TLSv1.3',
  session?: Buffer,
): Promise<{
  readonly socket: TLSSocket;
  readonly session: () => Buffer | undefined;
  readonly isOpen: () => boolean;
}> {
  const [host, port] = [
    address.slice(0, address.lastIndexOf(':')),
    Number(address.slice(address.lastIndexOf(':') + 1)),
  ];
  const socket = connect({
    host,
    port,
    ca: authority.certificate,
    cert: who.certificate,
    key: who.privateKey,
    minVersion: version,
    maxVersion: version,
    ALPNProtocols: ['h2', 'http/1.1'],
    ...(session === undefined ? {} : { session }),
  });
  let last: Buffer | undefined;
  let open = true;
  socket.on('session', (ticket) => {
    last = ticket;
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    open = false;
  });
  socket.resume();
  await once(socket, 'secureConnect');
  return { socket, session: () => last, isOpen: () => open };
}

describe('a client certificate that ends', () => {
  let files: ResourceFiles;
  let pem: TemporaryDirectory;
  let relay: RelayProcess;

  before(async () => {
    pem = temporaryDirectory();
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    const write = (name: string, text: string): string => {
      const path = join(pem.path, name);
      writeFileSync(path, text);
      return path;
    };
    const admin = {
      ca: write('ca.crt', authority.certificate),
      certificate: write('server.crt', server.certificate),
      private_key: write('server.key', server.privateKey),
    };
    const tls = { ...admin, require_client_certificate: true };
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      xds: { tls },
      rest: { tls },
      admin: { tls: admin },
      metrics: {},
      drain_timeout: '1s',
    });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
    pem?.[Symbol.dispose]();
  });

  async function endsInTime(door: 'xds' | 'rest' | 'admin', version: 'TLSv1.2' | 'TLSv1.3'): Promise<void> {
    const [ending, lasting] = [client('ending', lifetimeMs), client('lasting', 3_600_000)];
    const until = Date.now() + lifetimeMs;
    const first = await connected(relay[door], ending, version);
    const other = await connected(relay[door], lasting, version);
    const sessions = await eventually(() => {
      const both = [first.session(), other.session()];
      if (both.includes(undefined)) throw new Error('no ticket yet');
      return both;
    });
    const resumed = await connected(relay[door], lasting, version, sessions[1]);
    expect(resumed.socket.isSessionReused(), 'a valid one is resumed').to.equal(true);
    await eventually(() => expect(Date.now()).to.be.above(until + 1100));
    await eventually(() =>
      expect(first.isOpen(), `${door}, ${version}: the open connection`).to.equal(false),
    );
    const again = await connected(relay[door], ending, version, sessions[0]).catch(() => undefined);
    if (again !== undefined) {
      await eventually(() =>
        expect(again.isOpen(), `${door}, ${version}: the resumed connection`).to.equal(false),
      );
    }
    // The admin listener ends connections on which nothing is asked for.
    if (door !== 'admin') expect(resumed.isOpen()).to.equal(true);
    for (const { socket } of [other, resumed]) socket.destroy();
  }

  it('ends its connection, and resumes no TLS session, on every listener and with both versions of TLS', async () => {
    const doors = (['xds', 'rest', 'admin'] as const).flatMap((door) =>
      (['TLSv1.2', 'TLSv1.3'] as const).map((version) => [door, version] as const),
    );
    await Promise.all(doors.map(([door, version]) => endsInTime(door, version)));
  });

  it('ends its streams with UNAUTHENTICATED', async () => {
    const ending = client('streaming', lifetimeMs);
    using connection = new RawConnection(relay.xds, {
      ca: authority.certificate,
      cert: ending.certificate,
      key: ending.privateKey,
    });
    await connection.ready();
    const stream = connection.call();
    stream.stream.write(firstRequest);
    const { code, details } = await stream.ends;
    expect([code, details]).to.deep.equal([
      Code.UNAUTHENTICATED,
      "this client's certificate is no longer valid: connect with a new one",
    ]);
    const { body } = await get(`http://${relay.metrics}/metrics`);
    expect(body).to.match(/^distributary_downstream_rejected_total{reason="certificate_ended"} [1-9]/m);
  });
});
