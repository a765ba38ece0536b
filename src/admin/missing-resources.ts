import { create } from '@bufbuild/protobuf';
import {
  type ClassProblem,
  ClassProblemSchema,
  type ClientHolding,
  type GetClientResponse,
  type ListClassesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import { type ResourceName, resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import type { Constraints } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import { nearestParameters } from '../model/nearest-parameters.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import { isHeldByWildcard } from '../model/rollout.ts';
import { isCollection } from '../model/selection.ts';
import type { Pace } from '../model/time-slices.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { typeByName } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import { missingSentence, missingText, nearestText } from '../observe/missing-text.ts';
import type { Relay } from '../relay.ts';
import { notAcknowledged, whyHeldBack } from './missing-clients.ts';
import type { Answer, Plain } from './service.ts';
import type { Staleness } from './staleness.ts';

/** So many of the largest classes are asked whether they have what another one lacks. */
const mostClasses = 100;

/** Who has something that others lack: `sets` are the parameters of classes that have it. */
type Elsewhere = Awaited<ReturnType<typeof whoHas>>;

/**
 * Says of each MISSING why, unless the process with the client has said so, and who else has it: the process with the whole
 * cache knows that.
 */
export async function explainMissing(
  relay: Relay,
  answer: Plain<ListClassesResponse>,
  pace: Pace,
): Promise<Plain<ListClassesResponse>> {
  const known = new Map<string, Elsewhere>();
  const samples = new Map<string, Sample>();
  const missing: Plain<ClassProblem>[] = [];
  const isMissing = ({ kind }: Plain<ClassProblem>): boolean => kind === 'MISSING';
  for (const problem of answer.problems.filter(isMissing)) {
    await pace.yieldIfDue();
    const type = typeByName(problem.type) ?? typeUrl(problem.type);
    const key = `${problem.type} ${problem.name}`;
    const selector = canonicalOf(type, problem.name);
    const elsewhere = known.get(key) ?? (await whoHas(relay, type, selector, answer, pace));
    known.set(key, elsewhere);
    const own = internParameters(Object.entries(problem.parameters));
    const isThere = getOrMake(elsewhere.looked, own, () => has(relay, type, selector, own));
    const why = problem.why || whyMissing(relay, type, selector, { isThere, elsewhere: elsewhere.exists });
    const sample = getOrMake(samples, key, () => sampleOf(relay, type, selector));
    const said = {
      ...problem,
      why,
      nearest: why === noMatch ? nearestOf(sample, selector, own) : '',
      elsewhere: elsewhere.exists,
      otherClasses: elsewhere.sets.size - Number(elsewhere.sets.has(own)),
    };
    missing.push({ ...said, sentence: missingSentence(said) });
  }
  const others = answer.problems.filter((problem) => !isMissing(problem));
  return { ...answer, problems: [...others, ...missing.toSorted(byElsewhere)] };
}

/** What others could have is a mistake more often than what nobody has. */
const byElsewhere = (a: Plain<ClassProblem>, b: Plain<ClassProblem>): number =>
  Number(b.elsewhere) - Number(a.elsewhere) || b.clients - a.clients;

/** Which of the classes have a name, or something of a wildcard or glob. */
export async function whoHas(
  relay: Relay,
  type: TypeUrl,
  selector: Selector,
  { classes }: Plain<ListClassesResponse>,
  pace: Pace,
) {
  const looked = new Map<Parameters, boolean>();
  for (const { parameters } of classes.slice(0, mostClasses)) {
    await pace.yieldIfDue();
    const set = internParameters(Object.entries(parameters));
    getOrMake(looked, set, () => has(relay, type, selector, set));
  }
  const sets = new Set([...looked].flatMap(([set, hasIt]) => (hasIt ? set : [])));
  return { looked, sets, exists: sets.size > 0 || exists(relay, type, selector) };
}

function has(relay: Relay, type: TypeUrl, selector: Selector, parameters: Parameters): boolean {
  if (!isCollection(selector)) return isVariant(relay.store.peek(type, selector, parameters));
  // Of some there is only an error.
  return Iterator.from(relay.store.members(type, selector, parameters)).some((name) =>
    relay.store.isMember(type, selector, name, parameters),
  );
}

function exists({ store }: Relay, type: TypeUrl, selector: Selector): boolean {
  const table = store.tables.get(type);
  const hasVariant = (name: ResourceName): boolean => (table?.resources.get(name)?.variants.size ?? 0) > 0;
  if (!isCollection(selector)) return hasVariant(selector);
  return Iterator.from(table?.names(selector) ?? []).some(hasVariant);
}

/** `isThere`: upstream says something that matches this class. `elsewhere`: or some other one. */
function whyMissing(
  relay: Relay,
  type: TypeUrl,
  selector: Selector,
  { isThere, elsewhere }: Readonly<Record<'isThere' | 'elsewhere', boolean>>,
): string {
  // What waits under other names than its own is no reason for a class that would get none of them.
  const held = isThere || !isCollection(selector) ? whyHeldBack(relay, type, selector) : '';
  if (held !== '') return held;
  if (elsewhere) return noMatch;
  const upstream = relay.servedBy(type, selector);
  return upstream === undefined ? 'no upstream claims it' : `upstream ${upstream} does not have it`;
}

const noMatch = 'no variant matches';

/** So many variants are looked at, with constraints of so many bytes; and so many sets of parameters are told. */
const most = { sampled: 300, bytes: 32 << 10, nearest: 3 };

/** The constraints of the variants of a name, or of some names of a wildcard or glob. `isCut`: there are more. */
type Sample = ReturnType<typeof sampleOf>;

function sampleOf({ store }: Relay, type: TypeUrl, selector: Selector) {
  const table = store.tables.get(type);
  const names: (readonly Constraints[])[] = [];
  let [looked, sampled, bytes] = [0, 0, 0];
  const covered = isCollection(selector) ? table?.names(selector) : table?.namesOf(selector);
  for (const name of covered ?? []) {
    const isOver = looked++ === most.sampled || sampled >= most.sampled || bytes > most.bytes;
    if (isOver) return { names, isCut: true };
    const variants = table?.resources.get(name)?.variants.all() ?? [];
    const shown = selector === WILDCARD ? variants.filter(isHeldByWildcard) : variants;
    const fitting = shown.slice(0, most.sampled).filter(({ constraints }) => {
      // One may list thousands of values, and each is compared with what the client has.
      bytes += constraints.bytes.length;
      return bytes <= most.bytes;
    });
    names.push(fitting.map(({ constraints }) => constraints));
    sampled += variants.length;
  }
  return { names, isCut: bytes > most.bytes };
}

/** Empty: no other parameters are known that have something. */
function nearestOf({ names, isCut }: Sample, selector: Selector, own: Parameters): string {
  return nearestText(nearestParameters(names, own, most.nearest), !isCollection(selector), isCut);
}

/** Says of each name of a client why it has nothing of it, or has not said anything to it. */
export async function explainClient(
  relay: Relay,
  staleness: Staleness,
  client: GetClientResponse,
  classes: Plain<ListClassesResponse>,
  pace: Pace,
): Promise<Answer<'explainClient'>> {
  const lacking = client.holdings.filter(({ state }) => state === 'MISSING');
  const problems = lacking.map((one) => asProblem(one, client));
  const explained = await explainMissing(relay, { ...classes, problems }, pace);
  const whyMissing = new Map(explained.problems.map((one) => [keyOf(one), missingText(one)]));
  const serving = new Set<string | undefined>();
  const holdings = client.holdings.map((one) => {
    const type = typeByName(one.type) ?? typeUrl(one.type);
    const upstream = relay.servedBy(type, canonicalOf(type, one.name));
    serving.add(upstream);
    return { ...one, why: whyMissing.get(keyOf(one)) ?? whyUnanswered(relay, one, upstream) };
  });
  const staleUpstreams = staleness.stale.filter(({ name }) => serving.has(name));
  return { ...client, client: client.id, holdings, staleUpstreams };
}

/** A client may ask for one name with several sets of parameters. */
const keyOf = ({ type, name, parameters }: Pick<ClientHolding, 'type' | 'name' | 'parameters'>): string =>
  JSON.stringify([type, name, parameters]);

function whyUnanswered(
  relay: Relay,
  { type: short, name, state, sent }: ClientHolding,
  upstream: string | undefined,
): string {
  if (state === 'STALE') return notAcknowledged;
  if (state !== 'NOT_SENT') return '';
  const type = typeByName(short) ?? typeUrl(short);
  const selector = canonicalOf(type, name);
  const held = isCollection(selector) ? '' : whyHeldBack(relay, type, selector);
  if (held !== '') return held;
  const isCached = (relay.store.tables.get(type)?.resources.get(selector)?.variants.size ?? 0) > 0;
  if (sent !== '' || isCached) return 'it has not been sent yet';
  return `upstream ${upstream ?? ''} has not answered yet`;
}

/** As the answer about classes has it. */
const asProblem = (
  { type, name, parameters, why }: ClientHolding,
  { class: of }: GetClientResponse,
): Plain<ClassProblem> =>
  create(ClassProblemSchema, {
    ...{ kind: 'MISSING', type, name, class: of, parameters, clients: 1, what: name, why },
  });

/** A name, or a wildcard or glob, by the spelling of a client that was accepted. */
export function canonicalOf(type: TypeUrl, spelling: string): Selector {
  const name = canonicalName(spelling, type);
  return name.ok ? name.value : resourceName(spelling);
}
