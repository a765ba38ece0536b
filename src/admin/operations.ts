import type { IncomingMessage } from 'node:http';
import { TLSSocket } from 'node:tls';
import { createContextKey } from '@connectrpc/connect';
import type { TypeUrl } from '../model/brand.ts';
import { invalid } from '../wire/connect.ts';
import { addressText, parseSubjectAltNames } from '../wire/peer.ts';
import { verifiedIdentity } from '../wire/peer-identity.ts';
import { optionalType } from './requests.ts';

/** Who asks, for the log: the identity of the certificate, else the address. */
export const operatorKey = createContextKey<string>('unknown', { description: 'operator' });

export function operatorOf({ socket }: IncomingMessage): string {
  const address = addressText(socket.remoteAddress ?? 'unknown', socket.remotePort);
  if (!(socket instanceof TLSSocket) || !socket.authorized) return address;
  const { subjectAltName, subject = '' } = socket.getPeerX509Certificate() ?? {};
  const { uris, dns } = parseSubjectAltNames(subjectAltName ?? '');
  const identity = verifiedIdentity({ uriSans: uris, dnsSans: dns }) ?? subject.replaceAll('\n', ', ');
  return identity === '' ? address : `${identity} (${address})`;
}

/** What an operator does to changes: of a type and an upstream, or (undefined) of all. */
export interface Operation {
  readonly verb: 'freeze' | 'unfreeze' | 'release' | 'discard';
  readonly type: TypeUrl | undefined;
  readonly upstream: string | undefined;
  readonly reason: string;
  /** Who. */
  readonly operator: string;
}

interface OperationRequest {
  readonly upstream: string;
  readonly type: string;
  readonly reason: string;
}

/** Throws INVALID_ARGUMENT without a reason: the log must say why. */
export function operationOf(
  verb: Operation['verb'],
  { upstream, type, reason }: OperationRequest,
  operator: string,
): Operation {
  if (reason.trim() === '') throw invalid('reason is missing: say why, for the log');
  return {
    verb,
    type: optionalType(type),
    upstream: upstream === '' ? undefined : upstream,
    reason,
    operator,
  };
}
