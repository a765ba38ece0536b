import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import type { Plain } from '../admin/plain.ts';
import { type ResourcesQuery } from '../admin/requests.ts';
import type { Answer } from '../admin/service.ts';
import type { CachedResource } from '../cache/cached-resource.ts';
import {
  type NackStatus,
  type ResourceSummary,
  ResourceSummarySchema,
  type VariantSummary,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { contentHash } from '../model/change.ts';
import { formatConstraints } from '../model/constraints.ts';
import type { Variant } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';
import type { Rejection } from '../model/subscription.ts';
import { expectedText } from '../model/suggest.ts';
import { sortedInSlices, type TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { invalid } from '../wire/connect.ts';

/** What is cached, in pages, by type and name. INVALID_ARGUMENT: the page token is not one of its own. */
export function listResources(
  relay: Relay,
  { type: only, pageToken, pageSize, namePrefix }: ResourcesQuery,
  slices: TimeSlices,
): Promise<Answer<'listResources'>> {
  const after = readToken(pageToken);
  if (after === undefined) {
    throw invalid(`page_token: ${expectedText('the next_page_token of an answer', pageToken)}`);
  }
  return slices.run(async (pace) => {
    const found: Found[] = [];
    for (const [url, table] of relay.store.tables) {
      const type = typeInfo(url).short;
      if ((only !== undefined && url !== only) || type < after[0]) continue;
      for (const [name, cached] of table.resources) {
        await pace.yieldIfDue();
        if (!name.startsWith(namePrefix) || cached.variants.size === 0) continue;
        if (compare([type, name], after) > 0) found.push({ type, name, cached });
      }
    }
    const rest = await sortedInSlices(found, (a, b) => compare([a.type, a.name], [b.type, b.name]), pace);
    const rows = Iterator.from(rest.slice(0, pageSize)).map(summary);
    return new Listed({}, { field: 'resources', rows }, (written) => {
      const last = written < rest.length ? rest[written - 1] : undefined;
      const token = last && Buffer.from(JSON.stringify([last.type, last.name])).toString('base64url');
      return { nextPageToken: token ?? '' };
    });
  });
}

interface Found {
  readonly type: string;
  readonly name: string;
  readonly cached: CachedResource;
}

const summary = ({ type, name, cached }: Found): ResourceSummary =>
  create(ResourceSummarySchema, { type, name, variants: [...cached.variants.values().map(variantSummary)] });

/** The control plane's version, and what is the same everywhere. Nobody can guess a secret by it. */
export const versionsOf = ({
  type,
  version,
  deltaVersion,
}: Pick<Variant, 'type' | 'version' | 'deltaVersion'>) => ({
  version,
  content: typeInfo(type).short === 'sds' ? '' : contentHash({ deltaVersion }),
});

/** Of what a client has rejected, where that is one variant. */
export function rejectedVersions({
  variant,
}: Rejection): Pick<Plain<NackStatus>, 'content' | 'controlPlaneVersion'> {
  if (variant === undefined) return {};
  const { content, version } = versionsOf(variant);
  return {
    ...(content === '' ? {} : { content }),
    ...(version === '' ? {} : { controlPlaneVersion: version }),
  };
}

export function variantSummary({ variant, holders }: HeldVariant): Plain<VariantSummary> {
  return {
    constraints: formatConstraints(variant.constraints.expression),
    ...versionsOf(variant),
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
