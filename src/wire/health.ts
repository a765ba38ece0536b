import type { ConnectRouter } from '@connectrpc/connect';
import { Health, HealthCheckResponse_ServingStatus as Status } from '../gen/health_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { bytesTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import type { CallKind } from './auxiliary-calls.ts';
import { type AuxiliaryService, rpcError } from './connect.ts';
import { frameOf } from './grpc-frames.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';

/** Names of services. */
const maxRequestBytes = 4096;

/** An orchestrator must hear that the relay is well whatever clients do: a half-sent question gives way. */
const checks: CallKind = { name: 'health checks', max: 1000, maxPerPeer: 100, whenExceeded: 'ENDS_OLDEST' };
/** They last, and are counted apart, so that they leave room for checks. */
const watches: CallKind = { name: 'health watches', max: 1000, maxPerPeer: 100, whenExceeded: 'REFUSED' };

export function health(services: readonly string[], readiness: HealthSource): AuxiliaryService {
  const checker = new HealthChecker(services, readiness);
  return {
    routes: healthRoutes(checker, readiness),
    atOnce: new Map([[`/${Health.typeName}/${Health.method.check.name}`, (bytes) => checker.answer(bytes)]]),
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

const serviceTag = bytesTag(1);
const statusTag = varintTag(1);

/** The overall service `""` and each of `services` (full names) share one state. */
class HealthChecker {
  readonly known: ReadonlySet<string>;
  readonly #readiness: HealthSource;

  constructor(services: readonly string[], readiness: HealthSource) {
    this.known = new Set(['', ...services]);
    this.#readiness = readiness;
  }

  status(): Status {
    return this.#readiness.serving() ? Status.SERVING : Status.NOT_SERVING;
  }

  /** An unknown one fails NOT_FOUND, as the protocol wants it. */
  check(service: string): Result<Status, GrpcStatus> {
    if (this.known.has(service)) return ok(this.status());
    return fail({
      code: Code.NOT_FOUND,
      message: `service ${JSON.stringify(service)} is not known here`,
    });
  }

  /** From a HealthCheckRequest to a frame with the HealthCheckResponse. */
  answer(request: Buffer): Result<Buffer, GrpcStatus> {
    let service = '';
    try {
      for (const reader = new MessageReader(request); reader.next(); ) {
        if (reader.tag === serviceTag) service = reader.text();
      }
    } catch (error) {
      return fail({
        code: Code.INVALID_ARGUMENT,
        message: `the request cannot be decoded: ${String(error)}`,
      });
    }
    const checked = this.check(service);
    return checked.ok ? ok(frameOf(Uint8Array.of(statusTag, checked.value))) : checked;
  }
}

/** grpc.health.v1. Watch says SERVICE_UNKNOWN of a service that is not known, as the protocol wants it. */
function healthRoutes(checker: HealthChecker, readiness: HealthSource): (router: ConnectRouter) => void {
  const { known } = checker;
  const status = () => checker.status();
  return (router) => {
    router.service(Health, {
      check({ service }) {
        const checked = checker.check(service);
        if (!checked.ok) throw rpcError(checked.error);
        return { status: checked.value };
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
