/**
 * What a TLS handshake with a client's certificate costs the relay (`npm run bench:tls`): CPU of its process for a new
 * connection, until HTTP/2 has said hello, by the kinds of the certificates and by whether a session is resumed. Clients
 * connect from a process of their own, one after the other. The least of several rounds counts.
 */
import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect as connectPlain } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { systemClock } from '../src/model/clock.ts';
import { listenGrpc } from '../src/wire/http2-server.ts';
import { hourOf, TlsSessions } from '../src/wire/tls-sessions.ts';

const kinds = {
  ecdsa: 'ec -pkeyopt ec_paramgen_curve:P-256',
  rsa2048: 'rsa:2048',
  rsa4096: 'rsa:4096',
} as const;
type Kind = keyof typeof kinds;
/** Of the relay, and of clients and their authority. */
const pairs: readonly (readonly [Kind, Kind])[] = [
  ['ecdsa', 'ecdsa'],
  ['ecdsa', 'rsa2048'],
  ['rsa2048', 'ecdsa'],
  ['rsa2048', 'rsa2048'],
  ['rsa4096', 'rsa4096'],
];

const taskSchema = z.object({
  port: z.number(),
  /** Of the certificates; left out: no TLS. */
  directory: z.string().optional(),
  version: z.enum(['TLSv1.2', 'TLSv1.3']),
  resumes: z.boolean(),
});
type Task = z.infer<typeof taskSchema>;

/** Of HTTP/2, with no settings. The tickets of TLS 1.3 come before the answer. */
const settingsFrame = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
const hello = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settingsFrame]);

/** NAME.crt and NAME.key of an authority, the relay and a client. */
function issue(directory: string, relay: Kind, client: Kind): void {
  const openssl = (...args: string[]): unknown =>
    execFileSync('openssl', args, { cwd: directory, stdio: 'pipe' });
  const request = (kind: Kind, name: string): string[] => {
    const key = ['-newkey', ...kinds[kind].split(' '), '-nodes', '-keyout', `${name}.key`];
    return ['req', ...key, '-subj', `/CN=${name}`];
  };
  openssl(...request(client, 'ca'), '-x509', '-days', '2', '-out', 'ca.crt');
  for (const [kind, name] of [
    [relay, 'relay'],
    [client, 'client'],
  ] as const) {
    openssl(...request(kind, name), '-addext', `subjectAltName=DNS:${name}`, '-out', `${name}.csr`);
    const authority = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial'];
    const names = ['-copy_extensions', 'copyall'];
    openssl(
      'x509',
      '-req',
      '-in',
      `${name}.csr`,
      ...authority,
      ...names,
      '-days',
      '2',
      '-out',
      `${name}.crt`,
    );
  }
}

/** One process of clients. It connects so often as it is told. */
async function clients({ port, directory, version, resumes }: Task): Promise<void> {
  const file = (name: string): Buffer => readFileSync(join(directory ?? '', name));
  const secure = directory !== undefined && {
    ca: file('ca.crt'),
    cert: file('client.crt'),
    key: file('client.key'),
    servername: 'relay',
    ALPNProtocols: ['h2'],
    minVersion: version,
    maxVersion: version,
  };
  let session: Buffer | undefined;
  const plain = async (): Promise<void> => {
    const socket = connectPlain({ port });
    socket.write(hello);
    await once(socket, 'data');
    socket.destroy();
  };
  const handshake = async (): Promise<void> => {
    if (secure === false) return plain();
    const socket = connect({ port, ...secure, ...(session && { session }) });
    const tickets: Buffer[] = [];
    socket.on('session', (ticket) => tickets.push(ticket));
    socket.on('secureConnect', () => socket.write(hello));
    await once(socket, 'data');
    if (socket.isSessionReused() !== (session !== undefined))
      throw new Error('this was to be the other kind');
    if (resumes) session ??= tickets.at(-1);
    socket.destroy();
  };
  await handshake();
  process.send?.('ready');
  for (;;) {
    const count = await new Promise<number>((resolve) =>
      process.once('message', (message) => resolve(Number(message))),
    );
    for (let index = 0; index < count; index++) await handshake();
    process.send?.('done');
  }
}

/** Microseconds. */
async function costOf(task: Task, count: number, rounds: number): Promise<number> {
  const child = fork(import.meta.filename, [JSON.stringify(task)]);
  await once(child, 'message');
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds; round++) {
    const before = process.cpuUsage();
    child.send(count);
    await once(child, 'message');
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / count);
  }
  child.kill();
  return least;
}

async function serve(directory: string | undefined) {
  const file = (name: string): Buffer => readFileSync(join(directory ?? '', name));
  const sessions = new TlsSessions('xds');
  sessions.keys.renew(hourOf(systemClock.now()));
  const tls =
    directory === undefined
      ? undefined
      : {
          certificate: file('relay.crt'),
          privateKey: file('relay.key'),
          ca: file('ca.crt'),
          requireClientCertificate: true,
          sessions,
        };
  const server = await listenGrpc({
    address: '127.0.0.1:0',
    maxRequestBytes: 1024,
    accept: () => undefined,
    tls,
  });
  if (!server.ok) throw new Error(server.error);
  return server.value;
}

async function measure(count: number, rounds: number): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'tls-handshakes-'));
  const cost = async (version: Task['version'], resumes: boolean, certificates?: string): Promise<number> => {
    const server = await serve(certificates);
    const port = Number(server.address.split(':')[1]);
    const spent = await costOf({ port, directory: certificates, version, resumes }, count, rounds);
    await server.drain(0);
    return spent;
  };
  try {
    const base = await cost('TLSv1.3', false);
    console.log(`a connection without TLS: ${base.toFixed(0)} µs, which are taken off below\n`);
    console.log('| relay | clients | TLS | full, µs | resumed, µs | ratio |\n|-|-|-|-|-|-|');
    for (const [relay, client] of pairs) {
      issue(directory, relay, client);
      for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
        const full = (await cost(version, false, directory)) - base;
        const resumed = (await cost(version, true, directory)) - base;
        const figures = [full.toFixed(0), resumed.toFixed(0), (resumed / full).toFixed(2)];
        console.log(`| ${[relay, client, version.slice(4), ...figures].join(' | ')} |`);
      }
    }
  } finally {
    rmSync(directory, { recursive: true });
  }
}

if (process.send !== undefined) {
  await clients(taskSchema.parse(JSON.parse(process.argv[2] ?? '')));
} else {
  const { values } = parseArgs({
    options: { count: { type: 'string', default: '500' }, rounds: { type: 'string', default: '7' } },
  });
  await measure(Number(values.count), Number(values.rounds));
}
