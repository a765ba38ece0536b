import type { Plain } from '../admin/plain.ts';
import type { Change as ChangeMessage } from '../gen/distributary/admin/v1/changes_pb.ts';
import { isWhole, verdictOf } from '../history/history.ts';
import type { Change } from '../model/change.ts';
import { typeInfo } from '../model/types.ts';

/** Names of a change that are listed. */
const maxNames = 1000;

/** A change as History shows it. `state`: of the rollout, while it waits. */
export function changeMessage(change: Change, state: string | undefined): Plain<ChangeMessage> {
  const { revision, at, upstream, type, added, changed, removed, names, releasedAt, reason } = change;
  return {
    revision,
    since: new Date(at).toISOString(),
    upstream,
    type: typeInfo(type).short,
    added,
    changed,
    removed,
    names: names
      .slice(0, maxNames)
      .map((one) => ({ name: one.name, change: one.change, bytes: BigInt(one.bytes) })),
    bytes: BigInt(names.reduce((sum, { bytes }) => sum + bytes, 0)),
    bodies: isWhole(change),
    verdict: verdictOf(change),
    ...(state === undefined ? {} : { state }),
    released: releasedAt === undefined ? '' : new Date(releasedAt).toISOString(),
    reason,
    canariesSeconds: (change.canariesMs ?? 0) / 1000,
    clientsSeconds: (change.clientsMs ?? 0) / 1000,
    accepted: (change.canaries?.accepted ?? 0) + (change.answers?.accepted ?? 0),
    rejected: (change.canaries?.rejected ?? 0) + (change.answers?.rejected ?? 0),
  };
}
