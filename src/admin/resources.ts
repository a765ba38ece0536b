import { createHmac, randomBytes } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import type { CachedResource } from '../cache/cached-resource.ts';
import type { ListedClient } from '../downstream/services.ts';
import {
  type GetResourceResponseSchema,
  ResourceSummarySchema,
  type ResourceVariant,
  ResourceVariantSchema,
  type VariantSummary,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  type ClassProblem,
  type ListClassesResponse,
  type ListMatchesResponseSchema,
  type Match,
  MatchedNameSchema,
  type MatchedParameters,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { contentHash, controlPlaneVersion } from '../model/change.ts';
import { formatConstraints, UNCONSTRAINED } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';
import type { Rejection } from '../model/subscription.ts';
import { quote } from '../model/text.ts';
import { type Pace, sortedInSlices, type TimeSlices } from '../model/time-slices.ts';
import { WILDCARD } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { rpcError } from '../wire/connect.ts';
import { Code } from '../wire/grpc-status.ts';
import { redactedJson } from '../wire/redaction.ts';
import { Listed, nextOffset } from './answers.ts';
import { canonicalGiven, type MatchesQuery, type ResourceQuery, type ResourcesQuery } from './requests.ts';
import type { Answer, Plain } from './service.ts';

/** What is cached, in pages, by type and name. */
export function listResources(
  relay: Relay,
  { type: only, offset, pageSize, namePrefix }: ResourcesQuery,
  slices: TimeSlices,
): Promise<Answer<'listResources'>> {
  return slices.run(async (pace) => {
    const found: { type: string; name: string; cached: CachedResource }[] = [];
    for (const [url, table] of relay.store.tables) {
      const type = typeInfo(url).short;
      if (only !== undefined && url !== only) continue;
      for (const [name, cached] of table.resources) {
        await pace.yieldIfDue();
        if (name.startsWith(namePrefix) && cached.variants.size > 0) found.push({ type, name, cached });
      }
    }
    const all = await sortedInSlices(found, byTypeAndName, pace);
    const rows = Iterator.from(all.slice(offset, offset + pageSize)).map(({ cached, ...of }) =>
      create(ResourceSummarySchema, {
        ...of,
        variants: [...cached.variants.values().map(variantSummary)],
      }),
    );
    return new Listed({}, { field: 'resources', rows }, (written) => {
      const next = nextOffset(offset, written, all.length);
      return { nextPageToken: next === 0 ? '' : String(next) };
    });
  });
}

/** The control plane's version, and what is the same everywhere. Nobody can guess a secret by it. */
const versionsOf = ({ type, version, deltaVersion }: Pick<Variant, 'type' | 'version' | 'deltaVersion'>) => ({
  version: controlPlaneVersion({ version, deltaVersion }),
  content: typeInfo(type).short === 'sds' ? '' : contentHash({ deltaVersion }),
});

/** Of what a client has rejected, where that is one variant. */
export function rejectedVersions({
  variant,
}: Rejection): Pick<Plain<ClassProblem>, 'content' | 'controlPlaneVersion'> {
  if (variant === undefined) return {};
  const { content, version } = versionsOf(variant);
  return {
    ...(content === '' ? {} : { content }),
    ...(version === '' ? {} : { controlPlaneVersion: version }),
  };
}

/** As all messages about a variant have it: each takes what it has a field for. */
export const aboutVariant = (variant: Variant) => ({
  constraints: formatConstraints(variant.constraints.expression),
  ...versionsOf(variant),
  bytes: variant.payload?.bytes.length ?? 0,
  since: new Date(variant.cachedSince).toISOString(),
});

const upstreamsOf = ({ holders }: Pick<HeldVariant, 'holders'>): string =>
  [...new Set(holders.map((holder) => holder.upstream))].join(', ');

export const variantSummary = (held: HeldVariant): Plain<VariantSummary> => ({
  ...aboutVariant(held.variant),
  upstream: upstreamsOf(held),
});

/** Which variant it is, of all that have this name or alias. */
export const variantId = (held: Pick<HeldVariant, 'variant'>, asked: ResourceName) => ({
  constraints: formatConstraints(held.variant.constraints.expression),
  name: nameOf(held, asked),
});

/** Empty: the one that was asked for. */
export const nameOf = ({ variant }: Pick<HeldVariant, 'variant'>, asked: ResourceName): string =>
  variant.name === asked ? '' : variant.name;

type Named = Readonly<Record<'type' | 'name', string>>;

function byTypeAndName(a: Named, b: Named): number {
  if (a.type !== b.type) return a.type < b.type ? -1 : 1;
  return a.name < b.name ? -1 : 1;
}

type Answered = Listed<typeof GetResourceResponseSchema>;

/** Of the JSON of one resource: it is one string of the answer, and is written at once. */
const maxCharacters = 4 << 20;

type Shown = Pick<ResourceVariant, 'upstream' | 'state' | 'error'> & { readonly variant: Variant };

/** Every variant of a resource that is cached. NOT_FOUND: there is none. */
export function cachedVariants(
  relay: Relay,
  { type, name, offset }: ResourceQuery,
  slices: TimeSlices,
): Answered {
  const canonical = canonicalGiven(name, type);
  const variants = relay.store
    .named(type, canonical)
    .map((held) => ({ variant: held.variant, upstream: upstreamsOf(held), state: '', error: '' }));
  if (variants.length > 0) return listed(variants, offset, slices);
  const message = `no ${typeInfo(type).short} ${quote(name, 200)} is cached: distributary resources lists what is`;
  throw rpcError({ code: Code.NOT_FOUND, message });
}

/** What a client was last sent of a resource, one variant for each set of parameters. NOT_FOUND: nothing. */
export function sentVariants(
  stream: ListedClient,
  { type, name, offset }: ResourceQuery,
  slices: TimeSlices,
): Answered {
  const { short } = typeInfo(type);
  const canonical = canonicalName(name, type);
  const variants: Shown[] = [];
  const asked = stream.types.find(({ info }) => info.url === type);
  for (const holding of asked?.subscription?.holdings() ?? []) {
    const { value, state, rejection } = holding;
    const isMeant = holding.name === name || (canonical.ok && holding.canonical === canonical.value);
    if (!isMeant || !isVariant(value)) continue;
    variants.push({ variant: value, upstream: '', state, error: rejection?.message ?? '' });
  }
  if (variants.length > 0) return listed(variants, offset, slices);
  const message = `client ${stream.id} has not been sent ${short} ${quote(name, 200)}: distributary explain says why`;
  throw rpcError({ code: Code.NOT_FOUND, message });
}

function listed(variants: readonly Shown[], offset: number, slices: TimeSlices): Answered {
  return new Listed({}, { field: 'variants', rows: rows(variants.slice(offset), slices) }, (written) => ({
    nextOffset: nextOffset(offset, written, variants.length),
  }));
}

/** Their JSON is made when the ones before are written. */
async function* rows(variants: readonly Shown[], slices: TimeSlices) {
  for (const { variant, ...about } of variants) {
    const content = await slices.run((pace) => contentOf(variant, pace));
    yield [create(ResourceVariantSchema, { ...content, ...about })];
  }
}

async function contentOf(variant: Variant, pace: Pace) {
  const { type, payload } = variant;
  const summary = aboutVariant(variant);
  // A private key is for its subscribers, not for whoever asks what is cached.
  if (typeInfo(type).short === 'sds') return { ...summary, omitted: 'secrets are not shown' };
  if (payload === undefined) return { ...summary, omitted: 'it has no body' };
  const json = await redactedJson(payload.bytes, pace, maxCharacters);
  if (json !== undefined) return { ...summary, json };
  const why = `it is longer than ${maxCharacters} characters as JSON: CSDS over gRPC on the xDS port has its bytes`;
  return { ...summary, omitted: why };
}

/** Columns of an answer. */
const mostParameterSets = 24;

/** Which variant of each name each parameter set of the clients gets. */
export async function matchesOf(
  relay: Relay,
  { classes, problems }: Plain<ListClassesResponse>,
  { type, name, offset, pageSize }: MatchesQuery,
  pace: Pace,
): Promise<Listed<typeof ListMatchesResponseSchema>> {
  const columns = columnsOf(classes);
  const shown = columns.slice(0, mostParameterSets);
  const resources = relay.store.tables.get(type)?.resources ?? new Map<ResourceName, CachedResource>();
  const found: (readonly [ResourceName, CachedResource])[] = [];
  for (const [known, cached] of resources) {
    await pace.yieldIfDue();
    if (cached.variants.size > 0 && known.includes(name)) found.push([known, cached]);
  }
  const short = typeInfo(type).short;
  const rejected = problems.filter((problem) => problem.kind === 'REJECTED' && problem.type === short);
  const rejectedNames = new Set(rejected.map((problem) => problem.name));
  /** What somebody looks for comes first: what is rejected, and what is not the same for everybody. */
  const rank = ([known, { variants }]: (typeof found)[number]): number =>
    rejectedNames.has(known) ? 0 : variants.get(UNCONSTRAINED.key) === undefined || variants.size > 1 ? 1 : 2;
  const before = (a: (typeof found)[number], b: (typeof found)[number]): number =>
    rank(a) - rank(b) || (a[0] < b[0] ? -1 : 1);
  const names = await sortedInSlices(found, before, pace);
  const rows = Iterator.from(names.slice(offset, offset + pageSize)).map(([known, cached]) =>
    create(MatchedNameSchema, {
      name: known,
      matches: shown.map(({ set }) => matchOf(known, cached, set)),
    }),
  );
  const sets = shown.map(({ parameters, streams }) => ({ parameters, streams }));
  const totals = { total: names.length, totalParameterSets: columns.length };
  return new Listed({ parameterSets: sets }, { field: 'names', rows }, (_, more) => ({
    ...totals,
    truncated: more,
  }));

  function matchOf(known: ResourceName, cached: CachedResource, parameters: Parameters): Plain<Match> {
    const value = relay.store.peek(type, known, parameters);
    const ofThese = rejected.filter(
      (problem) =>
        problem.name === known && internParameters(Object.entries(problem.parameters)) === parameters,
    );
    // A name that nobody has asked for by itself is absent when the wildcard was answered without it.
    const isAbsent = () => relay.store.isResolved({ type, selector: WILDCARD, parameters });
    const about = isVariant(value)
      ? {
          state: 'present',
          content: value.payload === undefined ? 'no body' : matchedContent(type, value.payload.hash),
          constraints: formatConstraints(value.constraints.expression),
          version: controlPlaneVersion(value),
        }
      : { state: isAbsent() ? 'absent' : value, content: '', constraints: '', version: '' };
    return {
      ...about,
      ambiguous: cached.variants.match(parameters).length > 1,
      rejected: ofThese.reduce((sum, { clients }) => sum + clients, 0),
    };
  }
}

/** Classes with the same parameters and another access see the same variants, or fewer. */
function columnsOf(classes: ListClassesResponse['classes'] | Plain<ListClassesResponse>['classes']) {
  const columns = new Map<Parameters, Plain<MatchedParameters> & { readonly set: Parameters }>();
  for (const { parameters, streams } of classes) {
    const set = internParameters(Object.entries(parameters));
    getOrMake(columns, set, () => ({ parameters, streams: 0, set })).streams += streams;
  }
  return [...columns.values()].toSorted((a, b) => b.streams - a.streams);
}

const key = randomBytes(32);
/** Equal for equal content. Nobody can try guesses of a secret by it. */
const matchedContent = (type: TypeUrl, hash: string): string =>
  typeInfo(type).short === 'sds' ? createHmac('sha256', key).update(hash).digest('hex').slice(0, 16) : hash;
