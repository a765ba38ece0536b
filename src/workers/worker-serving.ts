import { createServer, type ListenOptions, type Server } from 'node:net';
import type { ServingMode } from '../client-serving.ts';
import type { Core } from '../core.ts';
import { WorkerService } from '../gen/distributary/workers/v1/workers_pb.ts';
import type { Cohort } from '../model/access.ts';
import { resourceName, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { internParameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { LogFormat } from '../observe/log-levels.ts';
import { formatHostPort } from '../wire/address.ts';
import { errorCode, explainError } from '../wire/node-error.ts';
import { feedConfig, openFeed } from './feed.ts';
import {
  canaryFeedSocket,
  feedSocket,
  listenPrivately,
  makePrivateDirectory,
  primarySocket,
  removePrivateDirectory,
} from './private-socket.ts';
import { WorkersFleet } from './reporters.ts';
import { clientStatusBy } from './worker-client.ts';
import { WorkerPool } from './worker-pool.ts';

/** Clients are served by workers; this process is the primary that feeds them. */
export function serveByWorkers(logFormat: LogFormat): ServingMode {
  const fleet = new WorkersFleet();
  let canaryFeed: string | undefined;
  return {
    configOf: feedConfig,
    role: {
      loadReports: 'primary',
      // A worker's stream serves many clients. The worker decides which of their streams fail.
      isUnavailable: () => false,
      refusal: () => undefined,
      rollout: {
        fleet,
        cohortOf: ({ address }) => (address === canaryFeed ? 'canary' : 'released'),
        judge: () => ({
          answered: () => fleet.reported(),
          waiting: () => new Map(),
          canaryEnded: () => {},
        }),
      },
    },
    async open(core, config, { serving, clientStatus }, _own, sessions) {
      const sockets = new AsyncDisposableStack();
      const made = openDirectory(sockets);
      if (!made.ok) return made;
      const directory = made.value;
      fleet.serve({
        rollout: core.rollout,
        hasDelivered: (cohort) => hasDelivered(core, cohort),
      });
      canaryFeed = canaryFeedSocket(directory);
      let workers: WorkerPool | undefined;
      const pool = await start();
      if (!pool.ok) await sockets.disposeAsync();
      return pool;

      async function start(): Promise<Result<WorkerPool>> {
        const feeds = config.rollout === undefined ? [feedSocket] : [feedSocket, canaryFeedSocket];
        for (const socket of feeds) {
          const feed = await openFeed(core, socket(directory));
          if (!feed.ok) return feed;
          sockets.defer(() => feed.value.drain(0));
        }
        const questions = await listenPrivately(
          primarySocket(directory),
          (router) =>
            router.service(WorkerService, {
              clientStatus: clientStatusBy(clientStatus),
              cached: ({ names }) => ({
                cached: names.flatMap(({ type, name, parameters }, at) => {
                  const given = internParameters(Object.entries(parameters));
                  const value = core.relay.store.peek(typeUrl(type), resourceName(name), given);
                  return isVariant(value) ? [at] : [];
                }),
              }),
              subscribedUpstreams: async ({ nodes }) => ({
                subscribed: (await workers?.subscribed(nodes)) ?? [],
              }),
            }),
          (error) => core.log.error('a request of a worker failed', { error }),
        );
        if (!questions.ok) return questions;
        sockets.use(questions.value);
        const reserved = sockets.use(new AsyncDisposableStack());
        const { address } = config.xds;
        const xds = address.kind === 'tcp' ? await reservePort(address, reserved) : ok(undefined);
        if (!xds.ok) return xds;
        const rest = config.rest ? await reservePort(config.rest.address, reserved) : ok(undefined);
        if (!rest.ok) return rest;
        const directions = { ports: { xds: xds.value, rest: rest.value }, directory, logFormat };
        workers = new WorkerPool(core, config, directions, fleet, sessions, serving, sockets, reserved);
        return workers.start();
      }
    },
  };
}

/** The directory is removed when the process ends, unless it is killed. */
function openDirectory(sockets: AsyncDisposableStack): Result<string> {
  const made = makePrivateDirectory();
  if (!made.ok) return made;
  const directory = made.value;
  const remove = (): void => removePrivateDirectory(directory);
  process.once('exit', remove);
  sockets.defer(() => {
    process.off('exit', remove);
    remove();
  });
  return made;
}

/** Of other types something is always on its way, and nobody waits for it. */
function hasDelivered({ relay, config }: Core, cohort: Cohort): boolean {
  const gated = new Set(config.rollout?.types);
  for (const { client, types } of relay.server.values()) {
    if (client?.access.cohort !== cohort) continue;
    for (const { info, subscription } of types) {
      if (!gated.has(info.url) || subscription === undefined) continue;
      if (subscription.due || subscription.responses.awaitsAnswer) return false;
    }
  }
  return true;
}

/**
 * The port of the workers. One that somebody listens on is refused here: the kernel would let workers listen beside another
 * program of this user that shares its port, too, and give each of them a part of the clients. `reserved` keeps out other
 * relays with workers, also while no worker listens.
 */
export async function reservePort(
  { host, port: wanted }: { readonly host: string; readonly port: number },
  reserved: AsyncDisposableStack,
): Promise<Result<{ readonly port: number; readonly shared: boolean }>> {
  const address = formatHostPort(host, wanted);
  const inVain = (error: Error) => fail(`cannot listen on ${address}: ${explainError(error)}`);
  // A port that the system chooses is nobody else's.
  if (process.platform === 'linux' && wanted !== 0) {
    // An abstract socket is known in the network namespace, as ports are, and gone with the process.
    const lock = await listening({ path: `\0distributary ${address}` });
    if (lock.ok) reserved.use(lock.value);
    else if (errorCode(lock.error) === 'EADDRINUSE') return inVain(lock.error);
  }
  const alone = await listening({ host, port: wanted });
  if (!alone.ok) return inVain(alone.error);
  const bound = alone.value.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : wanted;
  await alone.value[Symbol.asyncDispose]();
  const among = await listening({ host, port, reusePort: true });
  if (among.ok) await among.value[Symbol.asyncDispose]();
  return ok({ port, shared: among.ok });
}

/** Nobody is served: who connects is sent away. */
function listening(options: ListenOptions): Promise<Result<Server, Error>> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => {
    server.on('error', (error) => resolve(fail(error))); // later: a connection is not accepted
    server.listen(options, () => resolve(ok(server)));
  });
}
