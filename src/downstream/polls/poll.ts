import { fail, ok, type Result } from '../../model/result.ts';
import type { Selection } from '../../model/selection.ts';
import { type Encoding, encoding } from '../../model/subscription.ts';
import type { TypeInfo } from '../../model/types.ts';
import { Code } from '../../wire/grpc-status.ts';
import { type ErrorDetail, readSotwRequest, sotwSelectors } from '../../wire/requests.ts';
import type { Peer } from '../../wire/server-stream.ts';
import { deniesAll, excessOf, excessOfNames, malformed, type Refusal } from '../admission.ts';
import { selectState } from '../selecting.ts';
import type { ClientContext, DownstreamServices } from '../services.ts';
import { SotwNames } from '../steps.ts';

/** What one message of a client asks for, by the rules in force when it was read. */
export interface Poll {
  readonly info: TypeInfo;
  readonly client: ClientContext;
  readonly selection: Selection;
  readonly encoding: Encoding;
  /** What the client has; empty: nothing. */
  readonly version: string;
  /** Why it has rejected that. */
  readonly error: ErrorDetail | undefined;
}

/** What is kept of a poll after its answer, roughly. */
export const keptBytes = ({ selection }: Pick<Poll, 'selection'>): number => 1024 + 128 * selection.size;

/** Reads a DiscoveryRequest that stands for itself: it must carry the node, and the path says the type (§7.1). */
export function readPoll(
  info: TypeInfo,
  bytes: Buffer,
  peer: Peer,
  contentVersions: boolean,
  services: DownstreamServices,
): Result<Poll, Refusal> {
  const read = readSotwRequest(bytes);
  if (!read.ok) return invalid('malformed', read.error);
  const { typeUrl, node, selectors, version, error } = read.value;
  if (typeUrl !== '' && typeUrl !== info.url) {
    return invalid('type', `type_url ${JSON.stringify(typeUrl)} where ${info.url} is served`);
  }
  if (node === undefined) return invalid('no_node', 'the request must carry node');
  const context = services.context(node, peer);
  if (!context.ok) return fail({ reason: 'node', status: context.error });
  const client = context.value;
  const denied = client.access.deniesEverything(info.url);
  if (denied) return forbidden(`this client may not subscribe to ${info.url}`);
  const limits = client.exempt ? undefined : services.limits();
  const names = limits && excessOfNames(selectors, sotwSelectors, limits);
  if (names !== undefined) return exhausted(names);
  // As the first SotW request of a stream (§3.6): each poll stands for itself.
  const selection = selectState(selectors, info.url, client, services, new SotwNames());
  if (!selection.ok) return invalid('malformed', selection.error);
  if (deniesAll(client, info.url, selection.value)) {
    return forbidden(`this client may not subscribe to any of the ${info.short} resources that it names`);
  }
  const excess = limits && excessOf({ url: info.url, selection: selection.value }, [], limits);
  if (excess !== undefined) return exhausted(excess);
  return ok({
    info,
    client,
    selection: selection.value,
    encoding: encodingOf(client, contentVersions, services),
    version,
    error,
  });
}

function encodingOf(client: ClientContext, contentVersions: boolean, services: DownstreamServices): Encoding {
  const { wrapped, ttl } = client;
  return encoding({
    protocol: 'sotw',
    wrapped,
    ttl,
    constrained: services.constrained(),
    contentVersions,
    unknownNames: false,
    absencesUnsaid: false,
  });
}

const invalid = (reason: string, message: string) => fail({ reason, status: malformed(message) });

const forbidden = (message: string) =>
  fail({ reason: 'denied', status: { code: Code.PERMISSION_DENIED, message } });

const exhausted = (message: string) =>
  fail({ reason: 'subscriptions', status: { code: Code.RESOURCE_EXHAUSTED, message } });
