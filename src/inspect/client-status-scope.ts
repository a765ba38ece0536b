import type { Config } from '../config/config.ts';
import type { Access } from '../model/access.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { compilePrincipals } from '../security/pattern.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { verifiedIdentity } from '../wire/peer-identity.ts';
import type { Peer } from '../wire/server-stream.ts';

/** Whose streams a CSDS answer tells of (docs/adr/0065). */
export type StatusScope =
  /** All clients', and the relay's own view. */
  | { readonly kind: 'all' }
  /** Those of the clients that a certificate gives this identity. */
  | { readonly kind: 'identity'; readonly identity: string }
  | { readonly kind: 'connection'; readonly peer: Peer };

export const ALL_CLIENTS: StatusScope = { kind: 'all' };

/** What a peer of the xDS port may be told by CSDS, by the configuration in force (xds.client_status). */
export class StatusScopes {
  readonly enabled: boolean;
  readonly #seesAll: (peer: Peer) => boolean;
  readonly #accessOf: (peer: Peer) => Access;

  constructor({ xds: { clientStatus } }: Config, accessOf: (peer: Peer) => Access) {
    this.enabled = clientStatus.enabled;
    this.#seesAll = compilePrincipals(clientStatus.principals);
    this.#accessOf = accessOf;
  }

  of(peer: Peer): Result<StatusScope, GrpcStatus> {
    if (!this.enabled) {
      const message = 'CSDS is disabled here (xds.client_status)';
      return fail({ code: Code.UNIMPLEMENTED, message });
    }
    if (this.#seesAll(peer)) return ok(ALL_CLIENTS);
    if (this.#accessOf(peer).deniesEverything(undefined)) {
      const message = 'this client may not subscribe to anything, so there is nothing to show';
      return fail({ code: Code.PERMISSION_DENIED, message });
    }
    const identity = verifiedIdentity(peer);
    return ok(identity === undefined ? { kind: 'connection', peer } : { kind: 'identity', identity });
  }
}

/** Whether a stream of this peer is within the scope. */
export function isInScope(scope: StatusScope, peer: Peer): boolean {
  switch (scope.kind) {
    case 'all':
      return true;
    case 'identity':
      return verifiedIdentity(peer) === scope.identity;
    case 'connection':
      return peer === scope.peer;
    default:
      return scope satisfies never;
  }
}
