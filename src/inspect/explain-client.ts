import { create } from '@bufbuild/protobuf';
import type { Answer, Plain } from '../admin/service.ts';
import {
  type ClassProblem,
  ClassProblemSchema,
  type ClientHolding,
  type GetClientResponse,
  type ListClassesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import { typeUrl } from '../model/brand.ts';
import { isCollection } from '../model/selection.ts';
import type { Pace } from '../model/time-slices.ts';
import { typeByName } from '../model/types.ts';
import { missingText } from '../observe/missing-text.ts';
import type { Relay } from '../relay.ts';
import { whyHeldBack } from './missing-clients.ts';
import { canonicalOf, explainMissing } from './missing-resources.ts';
import type { Staleness } from './staleness.ts';

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
  const { id, nodeId, parameters, total, states } = client;
  return {
    client: id,
    nodeId,
    parameters,
    holdings,
    total,
    states,
    staleUpstreams: staleness.stale.filter(({ name }) => serving.has(name)),
  };
}

/** A client may ask for one name with several sets of parameters. */
const keyOf = ({ type, name, parameters }: Pick<ClientHolding, 'type' | 'name' | 'parameters'>): string =>
  JSON.stringify([type, name, parameters]);

function whyUnanswered(
  relay: Relay,
  { type: short, name, state, sent }: ClientHolding,
  upstream: string | undefined,
): string {
  if (state === 'STALE') return 'it was sent, and the client has not acknowledged it';
  if (state !== 'NOT_SENT') return '';
  const type = typeByName(short) ?? typeUrl(short);
  const selector = canonicalOf(type, name);
  const held = isCollection(selector) ? '' : whyHeldBack(relay, type, selector);
  if (held !== '') return held;
  const isCached = (relay.store.table(type)?.resources.get(selector)?.variants.size ?? 0) > 0;
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
