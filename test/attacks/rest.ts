/** Attacks on the REST listener: bodies, heads and connections, on every path that it serves. */
import { gzipSync } from 'node:zlib';
import type { Attack } from './support/attack.ts';
import {
  answerTo,
  callRest,
  closed,
  clusters,
  headOf,
  openRest,
  type RestCall,
  responseTo,
  restPaths,
  restSocket,
} from './support/rest-calls.ts';
import { SECRET } from './support/tenants.ts';

const MB = 1024 * 1024;
const CSDS = '/v3/discovery:client_status';
const poll = '{"node":{"id":"attacker"}}';

const attack = (name: string, run: Attack['run'], more: Attack['needs'] = []): Attack => ({
  name,
  needs: ['REST', ...more],
  run,
});

interface Wrong extends RestCall {
  readonly what: string;
  readonly statuses: readonly number[];
}

/** Each of these, on every path. */
const onEveryPath = (name: string, list: readonly Wrong[]): Attack =>
  attack(name, async (arena) => {
    for (const path of restPaths) {
      for (const { what, statuses, ...call } of list) {
        const { status, body } = await callRest(arena, { path, ...call });
        // To read a body counts as changes of subscriptions do: a peer may have done too much of it.
        const accepted = [...statuses, 429];
        if (!accepted.includes(status)) {
          throw new Error(`${path}: ${what}: ${status}, not ${accepted.join(' or ')}: ${body.slice(0, 200)}`);
        }
      }
    }
  });

const nested = (open: string, close: string): string => `${open.repeat(100_000)}1${close.repeat(100_000)}`;
const fine = [200, 304, 503];

export const rest: readonly Attack[] = [
  onEveryPath('JSON that is 100,000 levels deep', [
    { what: 'lists', body: nested('[', ']'), statuses: [400] },
    { what: 'objects', body: nested('{"a":', '}'), statuses: [400, 413] },
    { what: 'in the node', body: `{"node":{"metadata":${nested('{"a":', '}')}}}`, statuses: [400, 413] },
    { what: 'in what nobody reads', body: `{"node":{"id":"a"},"x":${nested('[', ']')}}`, statuses: [400] },
  ]),
  onEveryPath('__proto__, constructor, and a node without an id', [
    { what: 'of the request', body: `{"__proto__":${poll},"constructor":1}`, statuses: [...fine, 400] },
    {
      what: 'of the metadata',
      body: '{"node":{"metadata":{"__proto__":{"env":"prod"},"constructor":{"prototype":{"env":"prod"}}}}}',
      statuses: fine,
    },
    {
      what: 'as a name',
      body: '{"node":{},"resource_names":["__proto__","constructor"]}',
      statuses: [...fine, 403],
    },
  ]),
  onEveryPath('bodies that are no request', [
    { what: 'noise', body: Buffer.alloc(10_000, 0xff), statuses: [400] },
    { what: 'a number of a million digits', body: `{"node":${'9'.repeat(MB)}}`, statuses: [400, 413] },
    { what: 'half a surrogate', body: '{"node":{"id":"\\ud800"}}', statuses: [...fine, 400] },
    { what: 'a string of 3 MB', body: JSON.stringify({ node: 'x'.repeat(3 * MB) }), statuses: [400, 413] },
  ]),
  onEveryPath('heads that are no poll', [
    { what: 'another method', method: 'GET', body: '', statuses: [405] },
    { what: 'another content type', headers: { 'content-type': 'text/html' }, statuses: [415] },
    {
      what: 'a gzip bomb',
      body: gzipSync(Buffer.alloc(16 * MB)),
      headers: { 'content-encoding': 'gzip' },
      statuses: [415],
    },
  ]),
  attack('bodies of 5 MB, on every path, with and without their length', async (arena) => {
    for (const path of restPaths) {
      const { status } = await callRest(arena, { path, body: Buffer.alloc(5 * MB, 0x20) });
      if (status !== 413) throw new Error(`${path}: ${status}`);
    }
    const chunked = openRest(arena, {});
    const response = responseTo(chunked);
    chunked.write(Buffer.alloc(5 * MB, 0x20));
    const { statusCode } = await response;
    if (statusCode !== 413) throw new Error(`chunked: ${statusCode}`);
  }),
  attack('paths that lead elsewhere', async (arena) => {
    for (const path of ['/../../etc/passwd', '//etc/passwd', '/%2e%2e/x', `/${'x'.repeat(20_000)}`, '*']) {
      const answer = await answerTo(
        arena,
        `POST ${path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`,
      );
      if (!/^HTTP\/1\.1 4\d\d /.test(answer)) throw new Error(`${path}: ${answer.slice(0, 100)}`);
    }
  }),
  attack('requests that are two requests, or none', async (arena) => {
    const second = `${headOf(poll.length)}${poll}`;
    const odd = [
      `POST ${clusters} HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${second}`,
      `POST ${clusters} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\n${second}`,
      `POST ${clusters} HTTP/1.1\r\ncontent-length: 0\r\n${'x: y\r\n'.repeat(20_000)}\r\n${second}`,
      '\0'.repeat(10_000),
    ];
    for (const bytes of odd) {
      const answer = await answerTo(arena, bytes);
      if (answer.includes('versionInfo'))
        throw new Error(`a smuggled poll was answered: ${answer.slice(0, 100)}`);
    }
  }),
  attack('two hundred connections that never finish their body', async (arena) => {
    const sockets = await Promise.all(Array.from({ length: 200 }, () => restSocket(arena)));
    for (const socket of sockets) socket.resume().write(`${headOf(100_000)}{`);
    await Promise.all(sockets.map(closed));
  }),
  attack('eighty bodies of 1 MB of which the last byte never comes', async (arena) => {
    const sockets = await Promise.all(Array.from({ length: 80 }, () => restSocket(arena)));
    for (const socket of sockets) socket.resume().write(`${headOf(MB)}${' '.repeat(MB - 1)}`);
    await Promise.all(sockets.map(closed));
  }),
  attack('polls for other names each, as fast as they are answered', async (arena) => {
    for (let round = 0; round < 20; round++) {
      const answers = Array.from({ length: 20 }, (_, at) => {
        const request = { node: { id: 'attacker' }, resource_names: [`blue-${round}-${at}`] };
        return callRest(arena, { path: '/v3/discovery:endpoints', body: JSON.stringify(request) });
      });
      for (const { status } of await Promise.all(answers)) {
        if (![...fine, 429].includes(status)) throw new Error(`${status}`);
      }
    }
  }),
  attack('a hundred polls that wait, and are given up', async (arena) => {
    const sockets = await Promise.all(Array.from({ length: 100 }, () => restSocket(arena)));
    const body = '{"node":{"id":"attacker"},"resource_names":["never"]}';
    for (const socket of sockets) socket.write(`${headOf(body.length, '/v3/discovery:endpoints')}${body}`);
    for (const socket of sockets) socket.destroy();
  }),
  attack('a thousand polls on ten connections whose answers are not read', async (arena) => {
    const sockets = await Promise.all(Array.from({ length: 10 }, () => restSocket(arena)));
    for (const socket of sockets) socket.write(`${headOf(poll.length)}${poll}`.repeat(100));
    // One that is answered after all of them were read.
    await callRest(arena, {});
  }),
  attack('CSDS, a hundred at once', async (arena) => {
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => callRest(arena, { path: CSDS, body: '{}' })),
    );
    for (const { status } of answers) if (![200, 429].includes(status)) throw new Error(`${status}`);
  }),
  attack(
    "nearly another tenant's certificate, and another tenant's own",
    async (arena) => {
      const { attacker, impostors = {} } = arena.target.tls ?? {};
      const body = '{"node":{"id":"red"},"resource_names":["shop","red-shop","red-cluster"]}';
      for (const [what, identity] of Object.entries({ ...impostors, 'its own': attacker })) {
        if (identity === undefined) continue;
        for (const path of restPaths) {
          for (const asked of [body, '{"node":{"id":"red"}}']) {
            const answer = await callRest(arena, { path, identity, body: asked });
            const readable = Buffer.from(SECRET).toString('base64').slice(0, -4);
            if ([SECRET, readable, 'red-'].some((text) => answer.body.includes(text)))
              throw new Error(`${what}: ${path}: ${answer.body.slice(0, 200)}`);
          }
        }
      }
    },
    ['identities'],
  ),
];
