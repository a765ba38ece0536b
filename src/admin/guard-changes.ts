import type { IncomingMessage } from 'node:http';
import { TLSSocket } from 'node:tls';
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createContextKey, type Interceptor } from '@connectrpc/connect';
import type { Log } from '../observe/log.ts';
import { operatorKey } from './operations.ts';

/** How the caller of an RPC is known: without TLS, by a verified certificate, or over TLS without one. */
export type Caller = 'plaintext' | 'verified' | 'anonymous';

export const callerKey = createContextKey<Caller>('anonymous', { description: 'caller' });

export function callerOf({ socket }: IncomingMessage): Caller {
  if (!(socket instanceof TLSSocket)) return 'plaintext';
  return socket.authorized ? 'verified' : 'anonymous';
}

/**
 * Refuses methods that change something to those who may not call them. The proto marks methods that only read
 * (NO_SIDE_EFFECTS), so a new method is guarded until it is marked. The log has each attempt.
 */
export function guardChanges(readOnly: () => boolean, log: Log): Interceptor {
  return (next) => (request) => {
    const { method, contextValues } = request;
    if (method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS) {
      const refusal = refused(method.name, readOnly(), contextValues.get(callerKey));
      if (refusal !== undefined) {
        const said = { who: contextValues.get(operatorKey), what: method.localName, error: refusal };
        log.warn('an RPC that changes something was refused', said);
        throw new ConnectError(refusal, Code.PermissionDenied);
      }
    }
    return next(request);
  };
}

function refused(method: string, readOnly: boolean, caller: Caller): string | undefined {
  if (readOnly) return `${method} changes something, and this listener is read-only (admin.read_only: true)`;
  if (caller === 'anonymous') {
    return `${method} changes something: over TLS that needs a client certificate, verified against admin.tls.ca`;
  }
  return undefined;
}
