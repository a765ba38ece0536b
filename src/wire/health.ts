import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { Health, HealthCheckResponse_ServingStatus as Status } from '../gen/health_pb.ts';
import type { CallKind } from './auxiliary-calls.ts';
import type { AuxiliaryService } from './connect.ts';

/** Names of services. */
const maxRequestBytes = 4096;

/** An orchestrator must hear that the relay is well whatever clients do: the oldest half-sent question gives way. */
const checks: CallKind = { name: 'health checks', max: 1000, maxPerPeer: 100, whenExceeded: 'ENDS_OLDEST' };
/** They last, and are counted apart, so that they leave room for checks. */
const watches: CallKind = { name: 'health watches', max: 1000, maxPerPeer: 100, whenExceeded: 'REFUSED' };

export function health(services: readonly string[], readiness: HealthSource): AuxiliaryService {
  return {
    routes: healthRoutes(services, readiness),
    maxRequestBytes,
    kindOf: (path) => (path.endsWith('/Watch') ? watches : checks),
  };
}

/** Whether the process can serve, as a value that changes. */
export interface HealthSource {
  serving(): boolean;
  /** Calls back after each change until the function returned is called. */
  subscribe(changed: () => void): () => void;
}

/**
 * grpc.health.v1 for the overall service `""` and each of `services` (full names), which all share one state.
 * An unknown one: Check fails NOT_FOUND, Watch says SERVICE_UNKNOWN, as the protocol wants it.
 */
function healthRoutes(services: readonly string[], readiness: HealthSource): (router: ConnectRouter) => void {
  const known = new Set(['', ...services]);
  const status = () => (readiness.serving() ? Status.SERVING : Status.NOT_SERVING);
  return (router) => {
    router.service(Health, {
      check({ service }) {
        if (!known.has(service)) {
          throw new ConnectError(`service ${JSON.stringify(service)} is not known here`, Code.NotFound);
        }
        return { status: status() };
      },
      async *watch({ service }, { signal }) {
        if (!known.has(service)) {
          yield { status: Status.SERVICE_UNKNOWN };
          await new Promise<void>((resolve) => onAbort(signal, resolve));
          signal.throwIfAborted();
          return;
        }
        for await (const current of changes(status, readiness, signal)) yield { status: current };
        signal.throwIfAborted();
      },
      list() {
        const current = { status: status() };
        return { statuses: Object.fromEntries([...known].map((service) => [service, current])) };
      },
    });
  };
}

/** The status now and after each change that lasted until it could be sent: latest wins. */
async function* changes(
  status: () => Status,
  readiness: HealthSource,
  signal: AbortSignal,
): AsyncGenerator<Status> {
  let wake = (): void => undefined;
  const unsubscribe = readiness.subscribe(() => wake());
  onAbort(signal, () => wake());
  try {
    let sent: Status | undefined;
    while (!signal.aborted) {
      const current = status();
      if (current === sent) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else {
        sent = current;
        yield current;
      }
    }
  } finally {
    unsubscribe();
  }
}

function onAbort(signal: AbortSignal, run: () => void): void {
  if (signal.aborted) run();
  else signal.addEventListener('abort', run, { once: true });
}
