/** Attacks on the admin listener: by whoever reaches it, and by what clients of the xDS port say of themselves. */

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { isDisconnect } from '../../src/wire/node-error.ts';
import { type Answer, get, send } from '../e2e/support/http.ts';
import type { Arena, Attack } from './support/attack.ts';

const ADMIN = 'distributary.admin.v1.AdminService';
const CSDS = 'envoy.service.status.v3.ClientStatusDiscoveryService';
const MB = 1024 * 1024;

const attack = (name: string, run: Attack['run']): Attack => ({ name, needs: ['admin'], run });

const json = (arena: Arena, method: string, body: string): Promise<Answer> =>
  send('POST', `${arena.admin}/${method}`, body, 'application/json');

function isStatus({ status, body }: Answer, ...accepted: readonly number[]): void {
  if (!accepted.includes(status))
    throw new Error(`${status}, not ${accepted.join(' or ')}: ${body.slice(0, 200)}`);
}

async function socketTo(arena: Arena): Promise<Socket> {
  const { hostname, port } = new URL(arena.admin);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on('error', () => undefined);
  arena.use({ [Symbol.dispose]: () => socket.destroy() });
  await once(socket, 'connect');
  return socket;
}

/** The whole answer to bytes that need not be HTTP. */
async function answerTo(arena: Arena, bytes: string): Promise<string> {
  const socket = await socketTo(arena);
  const answer = text(socket).catch(() => '');
  socket.end(bytes, 'latin1');
  return answer;
}

export const admin: readonly Attack[] = [
  attack('JSON that is 100,000 levels deep', async (arena) => {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      const deep = `${open.repeat(100_000)}1${close.repeat(100_000)}`;
      for (const body of [deep, `{"parameters":${deep}}`, `{"node_matchers":${deep}}`]) {
        // 429: the body is larger than the relay reads.
        isStatus(await json(arena, `${ADMIN}/Explain`, body), 400, 404, 429);
        isStatus(await json(arena, `${CSDS}/FetchClientStatus`, body), 200, 400, 429);
      }
    }
  }),
  attack('__proto__ and constructor as keys and values', async (arena) => {
    const body = '{"type":"cds","name":"__proto__","parameters":{"__proto__":"x","constructor":"y"}}';
    isStatus(await json(arena, `${ADMIN}/Explain`, body), 200, 400, 404);
    isStatus(await json(arena, `${ADMIN}/Status`, '{"__proto__":{"polluted":true}}'), 200, 400);
    isStatus(await get(`${arena.admin}/__proto__`), 404);
    isStatus(await get(`${arena.admin}/constructor`), 404);
  }),
  attack(
    'DNS rebinding: requests for hosts that are not its own, from pages of other origins',
    async (arena) => {
      for (const host of ['evil.test', 'evil.test:80', '127.0.0.1.evil.test', 'localhost.evil.test', '']) {
        for (const path of ['/', '/metrics', '/config_dump', '/ready']) {
          const answer = await answerTo(
            arena,
            `GET ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`,
          );
          if (!/^HTTP\/1\.1 4\d\d /.test(answer)) throw new Error(`${host}${path}: ${answer.slice(0, 100)}`);
        }
      }
    },
  ),
  attack('bodies larger than accepted', async (arena) => {
    const body = `{"name":"${'x'.repeat(3 * MB)}"}`;
    try {
      isStatus(await json(arena, `${ADMIN}/Explain`, body), 400, 413, 429);
    } catch (error) {
      // The relay does not read it to its end: a client that still writes may see that before the answer.
      if (!isDisconnect(error)) throw error;
    }
  }),
  attack('paths that lead elsewhere', async (arena) => {
    for (const path of [
      '/../../etc/passwd',
      '/%2e%2e/%2e%2e/etc/passwd',
      '//etc/passwd',
      '/\\..\\..',
      '/config_dump/../x',
    ]) {
      const answer = await answerTo(
        arena,
        `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n`,
      );
      if (!/^HTTP\/1\.1 4\d\d /.test(answer)) throw new Error(`${path}: ${answer.slice(0, 100)}`);
    }
  }),
  attack('requests that are two requests, or none', async (arena) => {
    const odd = [
      'POST /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /config_dump HTTP/1.1\r\n\r\n',
      'GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n',
      `GET / HTTP/1.1\r\n${'x: y\r\n'.repeat(20_000)}\r\n`,
      'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      '\0'.repeat(10_000),
    ];
    for (const bytes of odd) {
      const answer = await answerTo(arena, bytes);
      if (answer.includes('"upstreams"'))
        throw new Error(`a smuggled request was answered: ${answer.slice(0, 100)}`);
    }
  }),
  attack('two hundred connections that never finish their request', async (arena) => {
    const sockets = await Promise.all(Array.from({ length: 200 }, () => socketTo(arena)));
    for (const socket of sockets)
      socket.write('POST /x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n\r\n{');
    isStatus(await get(`${arena.admin}/healthz`), 200);
  }),
  attack('three hundred requests for the page and the metrics', async (arena) => {
    for (let round = 0; round < 30; round++) {
      const all = Array.from({ length: 10 }, (_, at) =>
        get(`${arena.admin}${at % 2 === 0 ? '/' : '/metrics'}`),
      );
      for (const answer of await Promise.all(all)) isStatus(answer, 200);
    }
  }),
  attack('HTML in everything that a client says of itself', async (arena) => {
    const evil = '<script>alert(1)</script><img src=x onerror=alert(2)>"\'&';
    const client = arena.xds('sotw', { node: { id: evil, cluster: evil } });
    client.subscribe('cds', ['shop']);
    const { nonce } = await client.gets('cds');
    client.sotw('cds', {
      responseNonce: nonce,
      resourceNames: ['shop'],
      errorDetail: { code: 3, message: evil },
    });
    client.sotw(`type.googleapis.com/${evil}`, { resourceNames: [evil] });
    client.subscribe('eds', [evil]);
    await client.gets('cds', 1);
    const { body } = await get(`${arena.admin}/`);
    if (body.includes('<script>alert') || body.includes('<img src=x'))
      throw new Error('the page has it unescaped');
    const { body: metrics } = await get(`${arena.admin}/metrics`);
    if (metrics.includes('\n<')) throw new Error('the metrics have a line of the client');
  }),
];
