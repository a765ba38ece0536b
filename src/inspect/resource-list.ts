import type { Plain, ResourcesQuery } from '../admin/ports.ts';
import { withinAnswer } from '../admin/rpc-parts.ts';
import type { CachedResource } from '../cache/cached-resource.ts';
import type { ListResourcesResponse, VariantSummary } from '../gen/distributary/admin/v1/admin_pb.ts';
import { formatConstraints } from '../model/constraints.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';

/** What is cached, in pages, by type and name. INVALID_ARGUMENT: the page token is not one of its own. */
export function listResources(
  relay: Relay,
  query: ResourcesQuery,
): Result<Plain<ListResourcesResponse>, GrpcStatus> {
  const { pageToken, pageSize, namePrefix } = query;
  const after = readToken(pageToken);
  if (after === undefined) {
    const message = `page_token ${JSON.stringify(pageToken)} is not one that this service gave`;
    return fail({ code: Code.INVALID_ARGUMENT, message });
  }
  const found: { type: string; name: string; cached: CachedResource }[] = [];
  for (const [type, table] of relay.store.tables()) {
    if (query.type !== undefined && type !== query.type) continue;
    for (const [name, cached] of table.resources) {
      if (name.startsWith(namePrefix) && cached.variants.size > 0) {
        found.push({ type: typeInfo(type).short, name, cached });
      }
    }
  }
  found.sort((a, b) => compare([a.type, a.name], [b.type, b.name]));
  const rest = found.filter(({ type, name }) => compare([type, name], after) > 0);
  const page = withinAnswer(
    rest.slice(0, pageSize).map(({ type, name, cached }) => ({
      type,
      name,
      variants: [...cached.variants.values().map(variantSummary)],
    })),
  );
  const last = page.at(-1);
  const more = rest.length > page.length && last !== undefined;
  return ok({
    resources: page,
    nextPageToken: more ? Buffer.from(JSON.stringify([last.type, last.name])).toString('base64url') : '',
  });
}

export function variantSummary({ variant, holders }: HeldVariant): Plain<VariantSummary> {
  return {
    constraints: formatConstraints(variant.constraints.expression),
    version: variant.version,
    bytes: variant.payload?.bytes.length ?? 0,
    since: new Date(variant.cachedSince).toISOString(),
    upstream: [...new Set(holders.map((holder) => holder.upstream))].join(', '),
  };
}

function compare(a: readonly [string, string], b: readonly [string, string]): number {
  if (a[0] !== b[0]) return a[0] < b[0] ? -1 : 1;
  return a[1] === b[1] ? 0 : a[1] < b[1] ? -1 : 1;
}

function readToken(token: string): readonly [string, string] | undefined {
  if (token === '') return ['', ''];
  try {
    const value: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
    if (!Array.isArray(value)) return undefined;
    const type: unknown = value[0];
    const name: unknown = value[1];
    return typeof type === 'string' && typeof name === 'string' ? [type, name] : undefined;
  } catch {
    return undefined;
  }
}
