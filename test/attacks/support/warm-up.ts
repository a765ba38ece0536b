import { get } from '../../e2e/support/http.ts';
import { Arena } from './attack.ts';
import type { Target } from './target.ts';

const messages: readonly (readonly [path: string, message: Buffer])[] = [
  ['/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus', Buffer.alloc(0)],
  ['/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus', Buffer.alloc(0)],
  ['/grpc.health.v1.Health/Watch', Buffer.alloc(0)],
  // list_services
  ['/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', Buffer.of(0x3a, 0x01, 0x2a)],
  // file_containing_symbol: the descriptors of the whole Envoy API are read when they are first needed.
  [
    '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    reflectionOf('envoy.config.cluster.v3.Cluster'),
  ],
];

function reflectionOf(symbol: string): Buffer {
  return Buffer.concat([Buffer.of(0x22, symbol.length), Buffer.from(symbol)]);
}

/** One call of everything: what is loaded at the first call is no leak of the attack that makes it. */
export async function warmUp(target: Target): Promise<void> {
  await using arena = new Arena(target);
  const wildcard = arena.xds('sotw');
  wildcard.subscribe('cds');
  await wildcard.gets('cds');
  for (const [path, message] of messages) {
    const call = arena.call(arena.channel(), path);
    const answered = new Promise<void>((resolve) => {
      call.once('data', () => resolve());
      call.once('status', () => resolve());
    });
    call.write(message);
    call.end();
    await answered;
  }
  for (const path of ['/', '/ready', '/metrics', '/config_dump']) {
    if (target.admin !== undefined) await get(`${target.admin}${path}`);
  }
}
