import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { issueCertificate } from '../../support/certificates.ts';
import { ownPort } from '../../support/ports.ts';
import { ConstantRequests } from './constant-requests.ts';
import { ControlPlane } from './controlplane.ts';
import { Envoy, sourceOf, type Transport } from './envoy.ts';
import { eventually } from './eventually.ts';
import { temporaryDirectory } from './paths.ts';
import { RelayProcess, upstream } from './relay.ts';
import { cluster, configSource, endpoints, listener, type Resource, routes } from './resources.ts';
import type { Setting } from './setting.ts';

export interface SnapshotSwaps {
  readonly transport: Transport;
  /** SnapshotCache's flag `ads`. */
  readonly ordered: boolean;
  /** Undefined: Envoy is at the control plane directly. */
  readonly protocol: 'SOTW' | 'DELTA' | undefined;
  readonly swaps: number;
  /** Envoy polls over HTTP/2. */
  readonly http2?: true;
  /** Of the relays, the one at the control plane first. */
  readonly relays?: readonly object[];
  /** The relay ends and comes back after half of the swaps. */
  readonly restart?: boolean;
  /** It does at each, and the swap happens while it is away. */
  readonly away?: boolean;
}

export interface SnapshotSwapsOutcome {
  /** What Envoy answered, counted. */
  readonly answers: ReadonlyMap<string, number>;
  readonly failed: number;
  readonly total: number;
  /** How often relays waited in vain, and sent what would have failed requests or deleted what was needed (§8.6, §8.7). */
  readonly overdue: number;
}

const tls = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3';

/**
 * The website of one version. The listener changes, but keeps its name, or it would have another port, and the name of
 * its routes: Envoy's open connections stay at those of the listener that they came to. The secret is of endpoints that
 * there are none of, but the cluster waits for it.
 */
function snapshot(setting: Setting, transport: Transport, version: number, ca: string): readonly Resource[] {
  const source = sourceOf(transport);
  const [shop, secret] = [`shop-${version}`, `ca-${version}`];
  const context = {
    '@type': `${tls}.UpstreamTlsContext`,
    common_tls_context: {
      validation_context_sds_secret_config: { name: secret, sds_config: configSource(source) },
    },
  };
  const transport_socket = { name: 'tls', typed_config: context };
  const transport_socket_matches = [{ name: 'encrypted', match: { tls: 'yes' }, transport_socket }];
  return [
    { ...listener('web', 'web-routes', source), per_connection_buffer_limit_bytes: 32_768 + version },
    routes('web-routes', { '/': shop }),
    { ...cluster(shop, source), transport_socket_matches },
    endpoints(shop, (version % 2 === 1 ? setting.one : setting.two).port),
    { '@type': `${tls}.Secret`, name: secret, validation_context: { trusted_ca: { inline_string: ca } } },
  ];
}

/** A SnapshotCache replaces all of them in one snapshot, again and again, under 200 requests a second. */
export async function swapSnapshots(setting: Setting, options: SnapshotSwaps): Promise<SnapshotSwapsOutcome> {
  const {
    transport,
    ordered,
    protocol,
    swaps,
    relays = [{}],
    restart = false,
    away = false,
    http2,
  } = options;
  await using stack = new AsyncDisposableStack();
  const files = stack.use(temporaryDirectory());
  const { certificate } = issueCertificate({ name: 'ca', authority: true });
  const plane = stack.use(
    await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot', ordered }),
  );
  const set = (version: number): Promise<void> =>
    plane.set(snapshot(setting, transport, version, certificate));
  await set(1);
  let xds = plane.address;
  const start = async (above: string, index: number, more: object, before?: RelayProcess) => {
    const address = async (known: string | undefined) => known ?? `127.0.0.1:${await ownPort()}`;
    const cache = { persistence: { path: join(files.path, String(index)) } };
    const upstreams = [upstream(above, protocol ?? 'DELTA')];
    return RelayProcess.start({
      upstreams,
      xds: { address: await address(before?.xds) },
      ...(restart || away ? { cache } : {}),
      ...(transport === 'rest' ? { rest: { address: await address(before?.rest) } } : {}),
      ...more,
    });
  };
  let overdue = 0;
  const stop = async (relay: RelayProcess): Promise<void> => {
    overdue += (await relay.metric('downstream_order_timeouts_total')) || 0;
    await relay.stop();
  };
  const running: { relay: RelayProcess; readonly above: string; readonly more: object }[] = [];
  stack.defer(async () => {
    for (const { relay } of running.toReversed()) await relay.stop();
  });
  for (const [index, more] of (protocol === undefined ? [] : relays).entries()) {
    const relay = await start(xds, index, more);
    running.push({ relay, above: xds, more });
    xds = relay.xds;
  }
  if (transport === 'rest') xds = running.at(-1)?.relay.rest ?? '';
  const envoy = stack.use(
    await Envoy.start(setting.envoyBinary, { xds, transport, ...(http2 && { http2 }) }),
  );
  await envoy.answers('web', '/', 'one');
  await using requests = new ConstantRequests(await envoy.url('web'), 4, 200);
  for (let version = 2; version <= swaps + 1; version++) {
    if (restart && version === Math.ceil(swaps / 2)) {
      for (const [index, one] of running.entries()) {
        await stop(one.relay);
        one.relay = await start(one.above, index, one.more, one.relay);
      }
      const last = running.at(-1)?.relay;
      if (last !== undefined) await (transport === 'rest' ? isBack(last, version - 1) : hasAsked(last));
    }
    if (away) for (const { relay } of running) await stop(relay);
    await set(version);
    if (away)
      for (const [index, one] of running.entries())
        one.relay = await start(one.above, index, one.more, one.relay);
    await arrives(requests, version % 2 === 1 ? '200 one' : '200 two');
    await sleep(100);
  }
  await requests.stop();
  const { answers } = requests;
  const well = (answers.get('200 one') ?? 0) + (answers.get('200 two') ?? 0);
  for (const { relay } of running) overdue += (await relay.metric('downstream_order_timeouts_total')) || 0;
  return { answers, failed: requests.count - well, total: requests.count, overdue };
}

const types = ['lds', 'rds', 'cds', 'eds', 'sds'];

/** Envoy asks for one type after the other, and polls in its own time. */
async function isBack(relay: RelayProcess, version: number): Promise<void> {
  await eventually(
    async () => {
      const all = (await relay.clients()).flatMap((client) => client.types);
      const missing = types.filter(
        (type) => !all.some((one) => one.type === type && one.version.startsWith(`${version}@`)),
      );
      if (missing.length > 0) throw new Error(`Envoy does not have these yet: ${missing.join(', ')}`);
    },
    { timeout: 60_000 },
  );
}

/** Envoy has asked for every type on its streams, and has what there is. */
async function hasAsked(relay: RelayProcess): Promise<void> {
  await eventually(
    async () => {
      const all = (await relay.clients()).flatMap((client) => client.types);
      const missing = types.filter((type) => !all.some((one) => one.type === type && one.state === 'SYNCED'));
      if (missing.length > 0) throw new Error(`Envoy has not asked for these yet: ${missing.join(', ')}`);
    },
    { timeout: 60_000 },
  );
}

async function arrives(requests: ConstantRequests, answer: string): Promise<void> {
  await eventually(
    () => {
      if (requests.last !== answer) throw new Error(`the last answer was ${requests.last}, not ${answer}`);
    },
    { pause: 5, timeout: 60_000 },
  );
}
