import type { Plain } from '../admin/plain.ts';
import type { ExplainQuery } from '../admin/ports.ts';
import { sameVariantContent } from '../cache/same-content.ts';
import type { ExplainResponse, VariantExplanation } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { explainMatch, formatConstraints } from '../model/constraints.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientDetails } from './clients-view.ts';
import { whyHeldBack } from './held-back.ts';
import { variantSummary } from './resource-list.ts';

/**
 * Which variant a client gets. While a change waits, it is what the client's side sees (without a client: what all but
 * canaries see), and what waits is listed behind it.
 */
export function explain(
  relay: Relay,
  query: ExplainQuery,
  client: ClientDetails | undefined,
): Result<Plain<ExplainResponse>, GrpcStatus> {
  const name = canonicalName(query.name, query.type);
  if (!name.ok) return fail({ code: Code.INVALID_ARGUMENT, message: name.error });
  const parameters = query.parameters ?? client?.parameters ?? NO_PARAMETERS;
  const side = client?.side ?? 'released';
  const value = relay.store.sides[side].peek(query.type, name.value, parameters);
  const seen = relay.gate.contentOf(query.type, name.value, side);
  const variants = seen.map((held) =>
    Object.assign(variantSummary(held), explainMatch(held.variant.constraints.expression, parameters)),
  );
  return ok({
    match: isVariant(value) ? formatConstraints(value.constraints.expression) : '',
    matchFound: isVariant(value),
    variants: [...variants, ...waiting(relay, query.type, name.value, seen)],
    parameters: Object.fromEntries(parameters.entries),
    ambiguous: variants.filter(({ matches }) => matches).length > 1,
    state: isVariant(value) ? 'present' : value,
    canary: side === 'canary',
    otherClasses: 0,
    ...(client?.state === undefined ? {} : { client: client.state }),
  });
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
