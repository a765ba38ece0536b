import type { Plain, ResourceQuery } from '../admin/ports.ts';
import type { XdsStream } from '../downstream/xds-stream.ts';
import type { GetResourceResponse, ResourceVariant } from '../gen/distributary/admin/v1/admin_pb.ts';
import { isVariant } from '../model/catalog.ts';
import { formatConstraints } from '../model/constraints.ts';
import type { Variant } from '../model/resource.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { quote } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { redactedJson } from '../wire/redaction.ts';

type Answered = Result<Plain<GetResourceResponse>, GrpcStatus>;

/** Every variant of a resource that is cached. NOT_FOUND: there is none. */
export function cachedVariants(relay: Relay, { type, name }: ResourceQuery): Answered {
  const canonical = canonicalName(name, type);
  if (!canonical.ok) return fail({ code: Code.INVALID_ARGUMENT, message: canonical.error });
  for (const [url, table] of relay.store.tables()) {
    const cached = url === type ? table.resources.get(canonical.value) : undefined;
    if (cached === undefined || cached.variants.size === 0) continue;
    const variants = cached.variants.values().map(({ variant, holders }) => {
      const upstreams = new Set(holders.map(({ upstream }) => upstream));
      return Object.assign(contentOf(variant), { upstream: [...upstreams].join(', '), state: '', error: '' });
    });
    return ok({ variants });
  }
  const message = `no ${typeInfo(type).short} ${quote(name, 200)} is cached: ListResources shows what is`;
  return fail({ code: Code.NOT_FOUND, message });
}

/** What a client was last sent of a resource, one variant for each set of parameters. NOT_FOUND: nothing. */
export function sentVariants(stream: XdsStream, { type, name }: ResourceQuery): Answered {
  const { short } = typeInfo(type);
  const canonical = canonicalName(name, type);
  const variants: Plain<ResourceVariant>[] = [];
  const asked = stream.types.find(({ info }) => info.url === type);
  for (const holding of asked?.subscription?.holdings() ?? []) {
    const { value, state, rejection } = holding;
    const isMeant = holding.name === name || (canonical.ok && holding.canonical === canonical.value);
    if (!isMeant || !isVariant(value)) continue;
    variants.push({ ...contentOf(value), upstream: '', state, error: rejection?.message ?? '' });
  }
  if (variants.length > 0) return ok({ variants });
  const message = `client ${stream.id} has not been sent ${short} ${quote(name, 200)}: Explain says why`;
  return fail({ code: Code.NOT_FOUND, message });
}

function contentOf({ type, constraints, version, cachedSince, payload }: Variant) {
  const summary = {
    constraints: formatConstraints(constraints.expression),
    version,
    since: new Date(cachedSince).toISOString(),
    bytes: payload?.bytes.length ?? 0,
  };
  // A private key is for its subscribers, not for whoever asks what is cached.
  if (typeInfo(type).short === 'sds') return { ...summary, json: '', omitted: 'secrets are not shown' };
  if (payload === undefined) return { ...summary, json: '', omitted: 'it has no body' };
  return {
    ...summary,
    json: JSON.stringify(redactedJson(payload.bytes)),
    omitted: '',
  };
}
