import type { ServerTls } from '../config/config.ts';
import type { ClientStatusQuery } from '../inspect/csds.ts';
import { ok, type Result } from '../model/result.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { HttpServer } from '../wire/http-server.ts';
import type { GrpcServer } from '../wire/http2-server.ts';
import type { ListenerOptions } from '../wire/listener.ts';
import type { Core } from './core.ts';
import { watchTls } from './watched-tls.ts';

/** What the listeners for clients say of more than their own streams. */
export interface ClientAnswers {
  /** For the health service. */
  readonly serving: () => boolean;
  readonly clientStatus: (
    query: ClientStatusQuery,
  ) => Promise<Result<EncodedStatus, GrpcStatus>> | Result<EncodedStatus, GrpcStatus>;
}

/** `drain`: GOAWAY, and the end of what clients have open, over the time given; then it is closed. */
export type ClientListener = Pick<GrpcServer | HttpServer, 'address' | 'drain'>;

const lostAuthorities =
  'authorities were removed from ca: connections with certificates of these were closed';

/**
 * Opens a listener for clients with its certificate, and what holds for its connections whatever is spoken on them: by the
 * core's configuration. `listener`: its section there. The error says which address could not be listened on, and why.
 */
export async function openListener(
  core: Core,
  listener: 'xds' | 'rest',
  files: ServerTls | undefined,
  listen: (
    connections: Omit<ListenerOptions, 'address'> & Pick<Required<ListenerOptions>, 'report'>,
  ) => Promise<Result<GrpcServer | HttpServer>>,
): Promise<Result<ClientListener>> {
  const opened: { server?: GrpcServer | HttpServer } = {};
  const tls = await watchTls(files, () => opened.server, core, listener);
  if (!tls.ok) return tls;
  const { material, close } = tls.value;
  const listening = await listen({
    tls: material,
    bounds: core.admission.forListener(),
    accounts: core.accounts,
    maxConnectionAge: () => core.config.xds.maxConnectionAgeMs,
    reviewTime: () => core.config.drainTimeoutMs,
    reviewed: (connections: number) => {
      if (connections > 0) core.log.info(lostAuthorities, { listener, connections });
    },
    report: (message: string, error: unknown, peer?: string) =>
      core.conditions.set(`${listener} listener`, `${message}: ${String(error)}`, 'warn', message, {
        ...(peer === undefined ? {} : { peer }),
        error,
      }),
  });
  if (!listening.ok) {
    close();
    return listening;
  }
  const server = listening.value;
  opened.server = server;
  const drain = async (milliseconds: number): Promise<void> => {
    await server.drain(milliseconds);
    close();
  };
  return ok({ address: server.address, drain });
}
