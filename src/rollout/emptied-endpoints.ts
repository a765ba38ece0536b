import { assignmentType, hasEndpoints } from '../model/endpoints.ts';
import type { Gate, HeldVariant, PendingName } from '../model/rollout.ts';
import { nameKey, type WaitingNames } from './waiting.ts';

/** Assignments that would lose their endpoints, too many at once. */
export interface Emptied {
  /** By `nameKey`. */
  readonly names: ReadonlySet<string>;
  readonly reason: string;
}

/**
 * Whether what waits takes the endpoints of too many clusters (`rollout.max_emptied_percent`): of all that a session of
 * an upstream has. All that waits counts, as one update may be several changes. Undefined: it does not.
 */
export function emptiedTooMany(
  gate: Pick<Gate, 'contentOf' | 'releasedByHolder'>,
  { byType, names }: WaitingNames,
  maxEmptiedPercent: number,
): Emptied | undefined {
  if (!byType.has(assignmentType) || maxEmptiedPercent >= 100) return undefined;
  const byHolder = new Map<string, Set<string>>();
  for (const one of names)
    if (one.type === assignmentType)
      for (const holder of emptiedAt(gate, one)) {
        const own = byHolder.get(holder) ?? new Set();
        byHolder.set(holder, own.add(nameKey(one.type, one.name)));
      }
  if (byHolder.size === 0) return undefined;
  const released = gate.releasedByHolder(assignmentType);
  const tooMany = [...byHolder].filter(
    ([holder, own]) => own.size * 100 > maxEmptiedPercent * (released.get(holder) ?? 0),
  );
  if (tooMany.length === 0) return undefined;
  const emptied = new Set(tooMany.flatMap(([, own]) => [...own]));
  const [most = 0, all = 0] =
    tooMany
      .map(([holder, own]) => [own.size, released.get(holder) ?? 0] as const)
      .toSorted(([a], [b]) => b - a)[0] ?? [];
  return {
    names: emptied,
    reason: `${most} of ${all} eds would have no endpoints any more: max_emptied_percent is ${maxEmptiedPercent}`,
  };
}

/** The holders of variants that would be empty. What is removed is not emptied. */
function emptiedAt(gate: Pick<Gate, 'contentOf'>, { type, name }: PendingName): readonly string[] {
  const after = gate.contentOf(type, name, 'canary').filter((one) => !isUsed(one));
  const empty = new Set(after.map(({ variant }) => variant.constraints.key));
  return gate
    .contentOf(type, name, 'released')
    .filter((one) => isUsed(one) && empty.has(one.variant.constraints.key))
    .flatMap(({ holders }) => holders.map(({ key }) => key));
}

const isUsed = ({ variant: { payload } }: HeldVariant): boolean =>
  payload !== undefined && hasEndpoints(payload.bytes);
