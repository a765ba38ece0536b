import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import type { Plain } from '../admin/plain.ts';
import type { MatchesQuery } from '../admin/requests.ts';
import type { CachedResource } from '../cache/cached-resource.ts';
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
import { formatConstraints, UNCONSTRAINED } from '../model/constraints.ts';
import { contentHash } from '../model/content-hash.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { type Pace, sortedInSlices } from '../model/time-slices.ts';
import { WILDCARD } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';

/** Columns of an answer. */
const mostParameterSets = 24;

interface Column extends Plain<MatchedParameters> {
  readonly set: Parameters;
}

/** Which variant of each name each parameter set of the clients gets. */
export async function matchesOf(
  relay: Relay,
  { classes, problems }: Plain<ListClassesResponse>,
  { type, name, offset, pageSize }: MatchesQuery,
  pace: Pace,
): Promise<Listed<typeof ListMatchesResponseSchema>> {
  const columns = columnsOf(classes);
  const shown = columns.slice(0, mostParameterSets);
  const resources = relay.store.table(type)?.resources ?? new Map<ResourceName, CachedResource>();
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
      matches: shown.map(({ set }) => matchOf(relay, type, known, cached, set, rejected)),
    }),
  );
  const sets = shown.map(({ parameters, streams }) => ({ parameters, streams }));
  const totals = { total: names.length, totalParameterSets: columns.length };
  return new Listed({ parameterSets: sets }, { field: 'names', rows }, (_, more) => ({
    ...totals,
    truncated: more,
  }));
}

/** Classes with the same parameters and another access see the same variants, or fewer. */
function columnsOf(
  classes: ListClassesResponse['classes'] | Plain<ListClassesResponse>['classes'],
): Column[] {
  const columns = new Map<Parameters, Column>();
  for (const { parameters, streams } of classes) {
    const set = internParameters(Object.entries(parameters));
    const known = columns.get(set) ?? { parameters, streams: 0, set };
    columns.set(set, known);
    known.streams += streams;
  }
  return [...columns.values()].toSorted((a, b) => b.streams - a.streams);
}

function matchOf(
  relay: Relay,
  type: TypeUrl,
  name: ResourceName,
  cached: CachedResource,
  parameters: Parameters,
  rejected: readonly Plain<ClassProblem>[],
): Plain<Match> {
  const value = relay.store.peek(type, name, parameters);
  const matching = cached.variants.match(parameters).length;
  const ofThese = rejected.filter(
    (problem) => problem.name === name && internParameters(Object.entries(problem.parameters)) === parameters,
  );
  const about = isVariant(value)
    ? {
        state: 'present',
        content: contentOf(value),
        constraints: formatConstraints(value.constraints.expression),
        version: value.version,
      }
    : { state: stateOf(relay, type, value, parameters), content: '', constraints: '', version: '' };
  return {
    ...about,
    ambiguous: matching > 1,
    rejected: ofThese.reduce((sum, { clients }) => sum + clients, 0),
  };
}

/** A name that nobody has asked for by itself is absent when the wildcard was answered without it. */
function stateOf(relay: Relay, type: TypeUrl, value: 'absent' | 'unknown', parameters: Parameters): string {
  return relay.store.isResolved({ type, selector: WILDCARD, parameters }) ? 'absent' : value;
}

const contents = new WeakMap<Uint8Array, string>();

/** Equal bodies are one object in the cache, so a body is hashed once. */
function contentOf({ payload }: Variant): string {
  if (payload === undefined) return 'no body';
  const known = contents.get(payload.bytes);
  if (known !== undefined) return known;
  const created = contentHash(payload.bytes);
  contents.set(payload.bytes, created);
  return created;
}
