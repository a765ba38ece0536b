import type { Plain } from '../admin/plain.ts';
import { type ExplainQuery } from '../admin/requests.ts';
import type { Answer } from '../admin/service.ts';
import { sameVariantContent } from '../cache/same-content.ts';
import type { VariantExplanation } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { explainMatch, formatConstraints } from '../model/constraints.ts';
import { internParameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { invalid } from '../wire/connect.ts';
import { whyHeldBack } from './held-back.ts';
import { variantSummary } from './resource-list.ts';

/**
 * Which variant a client gets. While a change waits, it is what the client's side sees (without a client: what all but
 * canaries see), and what waits is listed behind it.
 */
export function explain(
  relay: Relay,
  query: ExplainQuery,
  client: Answer<'explain'> | undefined,
): Answer<'explain'> {
  const name = canonicalName(query.name, query.type);
  if (!name.ok) throw invalid(name.error);
  const parameters = query.parameters ?? internParameters(Object.entries(client?.parameters ?? {}));
  const side = client?.canary === true ? 'canary' : 'released';
  const value = relay.store.sides[side].peek(query.type, name.value, parameters);
  const seen = relay.gate.contentOf(query.type, name.value, side);
  const variants = seen.map((held) =>
    Object.assign(variantSummary(held), explainMatch(held.variant.constraints.expression, parameters)),
  );
  return {
    match: isVariant(value) ? formatConstraints(value.constraints.expression) : '',
    matchFound: isVariant(value),
    variants: [...variants, ...waiting(relay, query.type, name.value, seen)],
    parameters: Object.fromEntries(parameters.entries),
    ambiguous: variants.filter(({ matches }) => matches).length > 1,
    state: isVariant(value) ? 'present' : value,
    canary: side === 'canary',
    otherClasses: 0,
    ...(client?.client === undefined ? {} : { client: client.client }),
  };
}

/** What upstream says, and this side does not see yet. */
function waiting(
  relay: Relay,
  type: TypeUrl,
  name: ResourceName,
  seen: readonly HeldVariant[],
): Plain<VariantExplanation>[] {
  const said = relay.store.table(type)?.resources.get(name)?.variants.values() ?? [];
  const unseen = [...said].filter((entry) => !seen.some((held) => isSame(held.variant, entry.variant)));
  if (unseen.length === 0) return [];
  const reason = whyHeldBack(relay, type, name);
  return unseen.map((entry) => Object.assign(variantSummary(entry), { matches: false, reason }));
}

const isSame = (a: Variant, b: Variant): boolean =>
  a === b || (a.constraints === b.constraints && sameVariantContent(a, b));
