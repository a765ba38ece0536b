import type { ServiceImpl } from '@connectrpc/connect';
import { Health, HealthCheckResponse_ServingStatus as Status } from '../gen/health_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { bytesTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import { type AuxiliaryService, type CallKind, rpcError } from './connect.ts';
import { frameOf } from './grpc-frames.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';

/** Names of services. */
const maxRequestBytes = 4096;

/** An orchestrator must hear that the relay is well whatever clients do: a half-sent question gives way. */
const checks: CallKind = { name: 'health checks', max: 1000, maxPerPeer: 100, whenExceeded: 'ENDS_OLDEST' };
/** They last, and are counted apart, so that they leave room for checks. */
const watches: CallKind = { name: 'health watches', max: 1000, maxPerPeer: 100, whenExceeded: 'REFUSED' };

const serviceTag = bytesTag(1);
const statusTag = varintTag(1);

/** Calls back after each change until the function returned is called. */
type Subscribe = (changed: () => void) => () => void;

/**
 * grpc.health.v1: the overall service `""` and each of `services` (full names, of those that are served now) share one
 * state, which is whether the process can serve.
 */
export function health(
  services: () => readonly string[],
  serving: () => boolean,
  subscribe: Subscribe,
): AuxiliaryService {
  const statusOf = (service: string): Status => {
    if (service !== '' && !services().includes(service)) return Status.SERVICE_UNKNOWN;
    return serving() ? Status.SERVING : Status.NOT_SERVING;
  };
  /** Of an unknown one it fails with NOT_FOUND, as the protocol wants it. */
  const check = (service: string): Result<Status, GrpcStatus> => {
    const status = statusOf(service);
    if (status !== Status.SERVICE_UNKNOWN) return ok(status);
    const message = `service ${JSON.stringify(service)} is not known here`;
    return fail({ code: Code.NOT_FOUND, message });
  };
  /** From a HealthCheckRequest to a frame with the HealthCheckResponse. */
  const answer = (request: Buffer): Result<Buffer, GrpcStatus> => {
    let service = '';
    try {
      for (const reader = new MessageReader(request); reader.next(); ) {
        if (reader.tag === serviceTag) service = reader.text();
      }
    } catch (error) {
      const message = `the request cannot be decoded: ${String(error)}`;
      return fail({ code: Code.INVALID_ARGUMENT, message });
    }
    const checked = check(service);
    return checked.ok ? ok(frameOf(Uint8Array.of(statusTag, checked.value))) : checked;
  };
  const implementation: ServiceImpl<typeof Health> = {
    check({ service }) {
      const checked = check(service);
      if (!checked.ok) throw rpcError(checked.error);
      return { status: checked.value };
    },
    /** Says SERVICE_UNKNOWN of a service that is not known, as the protocol wants it, until it is. */
    async *watch({ service }, { signal }) {
      for await (const status of changes(() => statusOf(service), subscribe, signal)) yield { status };
      signal.throwIfAborted();
    },
    list() {
      const current = { status: statusOf('') };
      return { statuses: Object.fromEntries(['', ...services()].map((service) => [service, current])) };
    },
  };
  return {
    routes: (router) => void router.service(Health, implementation),
    atOnce: new Map([[`/${Health.typeName}/${Health.method.check.name}`, answer]]),
    maxRequestBytes,
    kindOf: (path) => (path.endsWith('/Watch') ? watches : checks),
  };
}

/** The status now and after each change that lasted until it could be sent: latest wins. */
async function* changes(
  status: () => Status,
  subscribe: Subscribe,
  signal: AbortSignal,
): AsyncGenerator<Status> {
  let wake = (): void => undefined;
  const unsubscribe = subscribe(() => wake());
  signal.addEventListener('abort', () => wake(), { once: true });
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
