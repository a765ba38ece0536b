import { Code, ConnectError, type ServiceImpl } from '@connectrpc/connect';
import type { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  DiffResponseSchema,
  type DiffSide,
  HistoryResponseSchema,
  RollbackResponseSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { internParameters } from '../model/parameters.ts';
import type { Changes, DiffSideQuery } from './changes-ports.ts';
import { operatorKey } from './operations.ts';
import { type Answer, optionalType, valueOf } from './rpc-parts.ts';

/** History, Diff and Rollback. */
export function changesMethods(
  changes: Changes,
  answer: Answer,
): Pick<ServiceImpl<typeof AdminService>, 'history' | 'diff' | 'rollback'> {
  return {
    history: ({ type, name, limit, before }, context) =>
      answer(HistoryResponseSchema, context, () =>
        changes.history({
          type: optionalType(type),
          name,
          limit: limit === 0 ? Number.POSITIVE_INFINITY : limit,
          before,
        }),
      ),
    diff: ({ from, to, type, name, offset }, context) =>
      answer(DiffResponseSchema, context, async () => {
        const sides = { from: sideOf('from', from), to: sideOf('to', to) };
        return valueOf(await changes.diff({ ...sides, type: optionalType(type), name, offset }));
      }),
    rollback: ({ to, reason, upstream, type }, context) =>
      answer(RollbackResponseSchema, context, async () => {
        const only = { upstream: upstream === '' ? undefined : upstream, type: optionalType(type) };
        return valueOf(
          await changes.rollback({ to, reason, ...only, operator: context.values.get(operatorKey) }),
        );
      }),
  };
}

function sideOf(field: string, side: DiffSide | undefined): DiffSideQuery {
  const of = side?.of;
  switch (of?.case) {
    case 'revision':
      return { kind: 'revision', revision: of.value };
    case 'released':
      return { kind: 'released' };
    case 'pending':
      return { kind: 'pending' };
    case 'client':
      return { kind: 'client', client: of.value };
    case 'parameters':
      return { kind: 'parameters', parameters: internParameters(Object.entries(of.value.values)) };
    default: {
      const message = `${field} is missing: expected revision, released, pending, client or parameters`;
      throw new ConnectError(message, Code.InvalidArgument);
    }
  }
}
