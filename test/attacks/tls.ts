/** Attacks on TLS, and by one tenant on another: certificates that lie, and requests for what is another's. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ConnectionOptions, connect } from 'node:tls';
import { Code } from '../../src/wire/grpc-status.ts';
import { XdsClient, type XdsClientOptions } from '../e2e/support/xds-client.ts';
import type { Arena, Attack } from './support/attack.ts';
import { PREFACE, settings } from './support/frames.ts';
import { addressOf, connectPlain, type Identity, secureAs, tlsOptions } from './support/target.ts';
import { SECRET } from './support/tenants.ts';

/** What is another tenant's, by every name that it has. */
const theirs = [
  'red-cluster',
  'red-changing',
  'red-shop',
  'red-*',
  '*',
  'RED-cluster',
  'red-cluster\0',
  ' red-cluster',
];

/** How a handshake and what follows it went: `refused`, or that it stands. */
async function handshake(arena: Arena, options: ConnectionOptions): Promise<'refused' | 'taken'> {
  const socket = connect(options);
  arena.use({ [Symbol.dispose]: () => socket.destroy() });
  // TLS 1.3 tells a client of its certificate after the client thinks that it is connected.
  const refused = Promise.race([once(socket, 'error'), once(socket, 'close')]).then(() => 'refused' as const);
  const first = await Promise.race([refused, once(socket, 'secureConnect').then(() => undefined)]).catch(
    () => 'refused' as const,
  );
  if (first !== undefined) return first;
  socket.write(Buffer.concat([PREFACE, settings()]));
  return Promise.race([refused, once(socket, 'data').then(() => 'taken' as const)]).catch(() => 'refused');
}

const refusedHandshake = (name: string, changes: ConnectionOptions): Attack => ({
  name,
  needs: ['TLS'],
  async run(arena) {
    if ((await handshake(arena, tlsOptions(arena.target, changes))) === 'taken')
      throw new Error('it was taken');
  },
});

/** Sees to it that nothing of the other tenant comes, by any way to ask that a stream has. */
async function getsNothing(client: XdsClient, what: string): Promise<void> {
  for (const type of ['cds', 'eds', 'sds']) {
    client.subscribe(type, theirs);
    client.subscribe(type);
  }
  client.subscribe('cds', ['shop']);
  // Who may read nothing is told so; others get what is theirs.
  await client.gets('cds').catch((error: unknown) => {
    if (client.status?.code !== Code.PERMISSION_DENIED && client.status?.code !== Code.UNAUTHENTICATED)
      throw error;
  });
  await sleep(50);
  for (const { first, type } of client.received) {
    if (first.some((bytes) => bytes.includes(SECRET) || bytes.includes('at='))) {
      throw new Error(`${what}: ${type} of the other tenant`);
    }
  }
}

function clientOf(arena: Arena, identity: Identity, options: XdsClientOptions = {}): XdsClient {
  const client = new XdsClient(addressOf(arena.target), 'delta', {
    ...secureAs(arena.target, identity),
    ...options,
  });
  return arena.use(client);
}

export const tls: readonly Attack[] = [
  {
    name: 'plaintext to a port of TLS',
    needs: ['TLS'],
    async run(arena) {
      const socket = await connectPlain(arena.target);
      arena.use({ [Symbol.dispose]: () => socket.destroy() });
      socket.resume();
      const closed = once(socket, 'close');
      socket.write(Buffer.concat([PREFACE, settings()]));
      await closed;
    },
  },
  {
    name: 'two hundred handshakes that stop after the first bytes',
    needs: ['TLS'],
    async run(arena) {
      const sockets: readonly Socket[] = await Promise.all(
        Array.from({ length: 200 }, () => connectPlain(arena.target)),
      );
      for (const socket of sockets) {
        arena.use({ [Symbol.dispose]: () => socket.destroy() });
        socket.write(Buffer.from('16030102000100', 'hex'));
      }
    },
  },
  {
    name: 'a hundred handshakes at once, each left as soon as it is done',
    needs: ['TLS'],
    async run(arena) {
      for (let round = 0; round < 5; round++) {
        await Promise.all(
          Array.from({ length: 20 }, async () => {
            const socket = connect(tlsOptions(arena.target));
            socket.on('error', () => undefined);
            await once(socket, 'secureConnect').catch(() => undefined);
            socket.destroy();
          }),
        );
      }
    },
  },
  refusedHandshake('TLS 1.1', {
    maxVersion: 'TLSv1.1',
    minVersion: 'TLSv1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  }),
  refusedHandshake('TLS 1.2 with a cipher of CBC', {
    maxVersion: 'TLSv1.2',
    ciphers: 'ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384:AES128-SHA',
  }),
  refusedHandshake('HTTP/1.1 by ALPN', { ALPNProtocols: ['http/1.1'] }),
  {
    name: 'no certificate where one is required',
    needs: ['identities'],
    async run(arena) {
      const { cert: _, key: __, ...none } = tlsOptions(arena.target);
      if ((await handshake(arena, none)) === 'taken') throw new Error('it was taken');
    },
  },
  {
    name: 'certificates that a careless reader takes for another tenant: commas, quotes, NUL, common names',
    needs: ['identities'],
    async run(arena) {
      const all = Object.entries(arena.target.tls?.impostors ?? {});
      await Promise.all(all.map(([odd, identity]) => getsNothing(clientOf(arena, identity), odd)));
    },
  },
  {
    name: "another tenant's resources: names, wildcards, what a client says of itself",
    needs: ['identities'],
    async run(arena) {
      const node = {
        id: 'well-behaved-client',
        cluster: 'tenants',
        metadata: { tenant: 'red', env: 'prod' },
      };
      const services = [
        'cluster.v3.ClusterDiscoveryService/DeltaClusters',
        'cluster.v3.ClusterDiscoveryService/StreamClusters',
      ];
      for (const protocol of ['sotw', 'delta'] as const)
        await getsNothing(arena.xds(protocol, { node }), protocol);
      for (const service of services) {
        const client = arena.xds(service.includes('Delta') ? 'delta' : 'sotw', {
          node,
          path: `/envoy.service.${service}`,
        });
        client.subscribe('cds', [...theirs, 'shop']);
        await client.gets('cds');
        if (client.received.some(({ first }) => first.some((bytes) => bytes.includes(SECRET))))
          throw new Error(service);
      }
    },
  },
  {
    name: "another tenant's variant: locators that name it, beside a trusted parameter",
    needs: ['identities'],
    async run(arena) {
      const client = arena.xds('delta', { node: { id: 'x', metadata: { tenant: 'red' } } });
      const dynamicParameters = { tenant: 'red' };
      const resourceLocatorsSubscribe = ['shop', 'red-shop', '*'].map((name) => ({
        name,
        dynamicParameters,
      }));
      for (const type of ['eds', 'sds', 'cds']) client.delta(type, { resourceLocatorsSubscribe });
      const { first } = await client.gets('eds');
      await sleep(50);
      const all = [first, ...client.received.map((one) => one.first)].flat();
      if (all.some((bytes) => bytes.includes(SECRET)))
        throw new Error('the variant of the other tenant came');
    },
  },
];
