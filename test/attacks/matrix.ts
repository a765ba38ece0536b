import { Arena, type Attack } from './support/attack.ts';
import type { Kind } from './support/relay-stage.ts';
import { restOf } from './support/rest-calls.ts';
import { tables } from './tables.ts';

/** A listener of a relay of this kind. */
export interface Door {
  readonly kind: Kind;
  readonly port: 'xds' | 'rest' | 'admin' | 'metrics';
}

export const doors: readonly Door[] = (['plain', 'TLS', 'workers'] as const).flatMap((kind) =>
  (['xds', 'rest', 'admin', 'metrics'] as const).map((port) => ({ kind, port })),
);

/** The doors of a kind at which a table is aimed. The REST port takes frames and headers too. */
const aims: Readonly<Record<string, readonly Door['port'][]>> = {
  frames: ['xds', 'rest'],
  hpack: ['xds', 'rest'],
  rest: ['rest'],
  admin: ['admin'],
};

/** Why a table does not run on a door. Every other cell runs. */
function reason(table: string, { kind, port }: Door): string | undefined {
  if (table === 'tls' && kind !== 'TLS') return 'the relay has no TLS';
  if (table === 'admin' && port === 'admin' && kind === 'TLS')
    return 'the admin listener is the plaintext one of the plain relay';
  if ((aims[table] ?? ['xds']).includes(port)) return undefined;
  if (table === 'tls' && port === 'rest') return 'the certificates of rest.ts are for this one';
  if (table === 'rest') return 'it polls on no other listener';
  if (table === 'admin') return 'its methods and pages are on no other listener';
  if (port === 'rest') return 'REST serves no gRPC';
  return 'this listener speaks HTTP/1.1 alone: first-bytes.test.ts';
}

/** Table and door, and why they do not meet; undefined: they do. */
export const cells: readonly {
  readonly table: string;
  readonly door: Door;
  readonly not: string | undefined;
}[] = Object.keys(tables).flatMap((table) =>
  doors.map((door) => ({ table, door, not: reason(table, door) })),
);

/** The same bytes, to the other port. */
const onRestPort = ({ name, run }: Attack): Attack => ({
  name,
  needs: ['REST'],
  run: (arena) => run(arena.use(new Arena(restOf(arena.target)))),
});

/** The tables that run on these doors of one relay. */
export function tablesFor(
  kind: Kind,
  ports: readonly Door['port'][],
): Readonly<Record<string, readonly Attack[]>> {
  const chosen = cells.filter(
    ({ door, not }) => not === undefined && door.kind === kind && ports.includes(door.port),
  );
  return Object.fromEntries(
    chosen.map(({ table, door }) => {
      const possible = (tables[table] ?? []).filter(
        ({ needs = [] }) => kind === 'TLS' || !(needs.includes('TLS') || needs.includes('identities')),
      );
      const isOwn = door.port !== 'rest' || table === 'rest';
      return [isOwn ? table : `${table} on the REST port`, isOwn ? possible : possible.map(onRestPort)];
    }),
  );
}
