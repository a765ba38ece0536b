import type { Plain } from '../admin/plain.ts';
import type { MissingClient } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { MaskReason, PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import type { Acceptance, AcceptanceQuery } from './missing-clients.ts';

const reasons: Readonly<Record<MaskReason, string>> = {
  discarded: 'what upstream has now was discarded',
  frozen: 'changes are frozen, and upstream has a newer version',
  rolledBack: 'it was rolled back and frozen',
};

export interface HeldBackQuery extends AcceptanceQuery {
  /** Of these names everybody was given what is asked for: what waits under them is newer. */
  readonly released: ReadonlySet<string>;
}

/** What the relay itself holds back: no client can accept that. */
export function heldBack(relay: Relay, query: HeldBackQuery): Acceptance {
  const listed: Plain<MissingClient>[] = [];
  for (const pending of relay.gate.pending) {
    if (query.type !== undefined && query.type !== pending.type) continue;
    if (query.names.size > 0 && !query.names.has(pending.name)) continue;
    if (query.released.has(pending.name)) continue;
    listed.push(row(pending));
  }
  return { clients: 0, missing: listed.length, missingClients: listed };
}

/** Why not everybody sees what upstream says under a name. */
export function whyHeldBack(relay: Relay, type: TypeUrl, name: ResourceName): string {
  for (const pending of relay.gate.pending)
    if (pending.type === type && pending.name === name) return whyOf(pending);
  return '';
}

const whyOf = ({ masked }: PendingName): string =>
  masked === undefined ? 'only canaries have it yet' : reasons[masked];

function row(pending: PendingName): Plain<MissingClient> {
  const { type, name } = pending;
  return { client: '', node: '', type: typeInfo(type).short, name, state: 'HELD', why: whyOf(pending) };
}
