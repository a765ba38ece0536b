import type { ServiceImpl } from '@connectrpc/connect';
import type { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  GetClientResponseSchema,
  ListClassesResponseSchema,
  ListMatchesResponseSchema,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Fleet } from './fleet-ports.ts';
import { type Answer, typeNamed, valueOf } from './rpc-parts.ts';

/** What a page has unless told, and at most. */
const names = { usual: 50, most: 200 };
const holdings = { usual: 500, most: 10_000 };

type FleetMethods = Pick<ServiceImpl<typeof AdminService>, 'listClasses' | 'listMatches' | 'getClient'>;

export function fleetMethods(fleet: Fleet, answer: Answer): FleetMethods {
  return {
    listClasses: (_, context) => answer(ListClassesResponseSchema, context, () => fleet.classes()),
    listMatches: ({ type, name, pageSize, offset }, context) =>
      answer(ListMatchesResponseSchema, context, () =>
        fleet.matches({ type: typeNamed(type), name, pageSize: bounded(pageSize, names), offset }),
      ),
    getClient: ({ id, limit, offset }, context) =>
      answer(GetClientResponseSchema, context, async () =>
        valueOf(await fleet.client({ id, limit: bounded(limit, holdings), offset })),
      ),
  };
}

function bounded(given: number, { usual, most }: { readonly usual: number; readonly most: number }): number {
  return given === 0 ? usual : Math.min(given, most);
}
