import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Content } from '../model/change.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { History } from './history.ts';

/** Contents by name, by type. */
export type StateAt = ReadonlyMap<TypeUrl, ReadonlyMap<ResourceName, Content>>;

/** Why what there was at a revision cannot be told, if so. */
export function reachable(history: History, revision: number): Result<undefined, GrpcStatus> {
  const { lastRevision, keepsBodies } = history;
  if (revision < 1 || revision > lastRevision) {
    return noSuchRevision(history, revision);
  }
  if (revision === lastRevision || history.reaches(revision)) return ok(undefined);
  const message = keepsBodies
    ? `revision ${revision} has expired: bodies are kept from later on only (history.max_bytes, history.max_age)`
    : `what there was at revision ${revision} was not kept: set history in the configuration to keep bodies`;
  return fail({ code: Code.FAILED_PRECONDITION, message });
}

/**
 * What everybody had at a revision, of all names that have changed since; what is not in it is as it is now. The first
 * change of a name after the revision says what it was before. If that is the first that was asked or said of it,
 * what it was before is unknown, which is not absent: a rollback takes what upstream said first, and to somebody who
 * compares it is new.
 */
export function releasedAt(
  history: History,
  revision: number,
  unknown: 'as first said' | 'absent' = 'as first said',
): StateAt {
  const state = new Map<TypeUrl, Map<ResourceName, Content>>();
  for (const { type, names, first } of history.after(revision)) {
    const contents = state.get(type) ?? new Map<ResourceName, Content>();
    state.set(type, contents);
    for (const { name, content, verdict } of names) {
      if (content === undefined || contents.has(name)) continue;
      const isUnknown = first && verdict === 'RELEASED';
      contents.set(name, isUnknown && unknown === 'as first said' ? content.after : content.before);
    }
  }
  return state;
}

export function noSuchRevision({ lastRevision }: History, revision: number): Result<never, GrpcStatus> {
  const known =
    lastRevision === 0
      ? 'there is none yet'
      : `the last one is ${lastRevision}, and the oldest ones are not kept`;
  return fail({ code: Code.NOT_FOUND, message: `there is no revision ${revision}: ${known}` });
}
