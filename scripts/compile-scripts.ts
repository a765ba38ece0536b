/**
 * Keeps what V8 compiles of a bundle's scripts while they run: node scripts/compile-scripts.ts DIRECTORY
 *
 * V8 compiles a function when it is called first. So here is what a relay calls at its start and for its first clients: one
 * relay over files, one over that one, clients of it, and who scrapes it and asks it by RPC.
 */

import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { demoClient } from '../src/commands/demo.ts';
import { Scripts } from './bundled-program.ts';

/** Some functions are compiled only when they are called again. */
const clients = 5;
/** Of each client: clusters, endpoints, listeners, routes. */
const responses = 4;
const patience = { lookMs: 50, looks: 600 };

const resources = join(import.meta.dirname, '../deploy/demo/resources');
const directory = resolve(process.argv[2] ?? '');
const scripts = new Scripts(directory);
const place = mkdtempSync(join(tmpdir(), 'distributary-compile-'));
const socketOf = (name: string): string => join(place, `${name}.sock`);

async function until(what: string, isThere: () => boolean): Promise<void> {
  for (let look = 0; look < patience.looks; look++) {
    if (isThere()) return;
    await setTimeout(patience.lookMs);
  }
  throw new Error(`${what} in ${(patience.looks * patience.lookMs) / 1000} s`);
}

function run(...args: readonly string[]): Promise<void> {
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args);
  return scripts.run();
}

/** Until SIGTERM. */
async function relay(
  name: string,
  upstream: object,
  adminPort = 0,
): Promise<{ readonly ended: Promise<void> }> {
  const file = join(place, `${name}.json`);
  const config = {
    node: { id: name },
    xds: { address: `unix:${socketOf(name)}` },
    admin: { address: `127.0.0.1:${adminPort}` },
    parameters: [{ key: 'env', from: 'node.metadata.env' }],
    upstreams: [{ name: 'upstream', ...upstream }],
  };
  writeFileSync(file, JSON.stringify(config));
  const ended = run('run', '--config', file, '--log-level', 'error');
  const listens = (): boolean => statSync(socketOf(name), { throwIfNoEntry: false })?.isSocket() === true;
  await until(`${name} does not listen`, listens);
  return { ended };
}

/** One that was free a moment ago. */
async function freePort(): Promise<number> {
  await using server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the server has no port');
  return address.port;
}

/** With a body it is a Connect call. */
async function ask(port: number, path: string, body?: string): Promise<void> {
  const method = body === undefined ? 'GET' : 'POST';
  const headers = { 'content-type': 'application/json' };
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request({ host: '127.0.0.1', port, path, method, headers, agent: false })
    .on('response', resolve)
    .on('error', reject)
    .end(body);
  const response = await promise;
  await text(response);
  if (response.statusCode !== 200) throw new Error(`${path} answers ${response.statusCode}`);
}

try {
  // Else it drops again what only the start has called.
  setFlagsFromString('--no-flush-bytecode');
  await run('--help');
  const above = await relay('above', { filesystem: { path: resources } });
  const adminPort = await freePort();
  const ads = { endpoints: [`unix:${socketOf('above')}`], variants: 'NATIVE' };
  const below = await relay('below', { ads }, adminPort);
  let received = 0;
  const fleet = Array.from({ length: clients }, (_, index) =>
    demoClient(`unix:${socketOf('below')}`, `client-${index}`, 'prod', {
      received: () => received++,
      ended: (reason) => process.stderr.write(`a client ended: ${reason}\n`),
    }),
  );
  await until('the clients do not get everything', () => received >= clients * responses);
  for (const path of ['/ready', '/metrics', '/metrics']) await ask(adminPort, path);
  await ask(adminPort, '/distributary.admin.v1.AdminService/ListClients', '{}');
  for (const client of fleet) client.close();
  process.kill(process.pid, 'SIGTERM');
  await Promise.all([above.ended, below.ended]);
  // V8 takes code only if its flags are the same.
  setFlagsFromString('--flush-bytecode');
  for (const [path, code] of scripts.compiled()) {
    mkdirSync(dirname(join(directory, path)), { recursive: true });
    writeFileSync(join(directory, path), code);
  }
} finally {
  rmSync(place, { recursive: true, force: true });
}
