import type { TypeUrl } from '../model/brand.ts';
import type { PendingName } from '../model/rollout.ts';
import { counted } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import type { CanaryRules } from './canaries.ts';

interface Gating {
  readonly canary: CanaryRules;
  /** Empty: anybody. */
  readonly canaryPrincipals?: readonly string[];
  readonly types: readonly TypeUrl[];
}

export interface WaitingChange {
  /** Why it is held; undefined: its canaries have not decided yet. */
  readonly reason: string | undefined;
  readonly names: readonly Pick<PendingName, 'type'>[];
}

const operations = '"distributary release" (everybody gets it) or "distributary discard" (canaries go back)';

/**
 * Why a reload must not take effect while a change waits: it would show the change to clients that are protected from
 * it. Undefined: it would not. More canaries may see what nobody has found bad.
 */
export function reloadObjection(
  { reason, names }: WaitingChange,
  before: Gating,
  after: Gating | undefined,
): string | undefined {
  const refused = (path: string, why: string): string => {
    const types = [...new Set(names.map(({ type }) => typeInfo(type).short))].join(', ');
    const what = `${types}: ${counted(names.length, 'name')}`;
    return reason === undefined
      ? `${path}: ${why} while a change waits for canaries (${what}): wait until everybody has it, or run ${operations}, then send SIGHUP`
      : `${path}: ${why} while a change is held (${what}; ${reason}): run ${operations} first, then send SIGHUP`;
  };
  if (after === undefined) return refused('rollout', 'it cannot be taken out');
  const ungated = names.find(({ type }) => before.types.includes(type) && !after.types.includes(type));
  if (ungated !== undefined)
    return refused('rollout.types', `${typeInfo(ungated.type).short} cannot be taken out`);
  if (reason === undefined) return undefined;
  if (after.canary.percent > before.canary.percent) {
    const change = `${before.canary.percent} to ${after.canary.percent}`;
    return refused('rollout.canary.percent', `it cannot grow (${change})`);
  }
  const { canaryPrincipals: named = [] } = before;
  const { canaryPrincipals: principals = [] } = after;
  if (named.length > 0 && (principals.length === 0 || principals.some((one) => !named.includes(one))))
    return refused('rollout.canary_principals', 'it cannot name more clients');
  const added = after.canary.match.find(
    (one) => !before.canary.match.some(({ key, value }) => key === one.key && value === one.value),
  );
  if (added === undefined) return undefined;
  return refused('rollout.canary.match', `${added.key}: ${added.value} cannot be added`);
}
