import { Rate } from '../model/clock.ts';
import { lengthOf, type Selection, type SelectionEntry } from '../model/selection.ts';
import type { Subscription } from '../model/subscription.ts';
import type { TypeInfo } from '../model/types.ts';
import type { ClientStream } from '../wire/client-stream.ts';
import { Code } from '../wire/grpc-status.ts';
import { denied, exhausted, heldBytes, type Refusal } from '../wire/refusal.ts';
import { countSelectors, countVersions, type SelectorFields } from '../wire/requests.ts';
import type { ClientContext, DownstreamServices, StreamLimits, Subscribed } from './services.ts';

/** One type of a stream. */
type AdmittedType = Subscribed & { readonly subscription: Pick<Subscription, 'owed' | 'view'> | undefined };

/** The stream whose client is admitted. */
type AdmittedStream = Pick<ClientStream<ClientContext>, 'peer' | 'isPaused' | 'pauseReading' | 'failFor'> & {
  readonly route: { readonly type: unknown };
  readonly types: readonly AdmittedType[];
};

/** A change counts once, or once for each new parameter set; and once more for each so many resources that it shows. */
const shownPerChange = 500;
const muchShown = 250;
/** A change that opens so many sessions upstream is a large one. */
const manySessions = 50;

/**
 * The limits on what a client may subscribe to, asked before they are passed, and how often it may change that. False: this
 * was too much, and the stream is over.
 */
export class Quota {
  readonly #stream: AdmittedStream;
  readonly #services: DownstreamServices;
  /** Parameter sets that it has taken since this was last asked. */
  #newSessions = 0;
  #rate: Rate | undefined;

  constructor(stream: AdmittedStream, services: DownstreamServices) {
    this.#stream = stream;
    this.#services = services;
  }

  oneMoreType(client: ClientContext): boolean {
    const types = this.#stream.types.length + 1;
    const excess = `${types} types on one stream: at most ${maxTypes} are accepted`;
    return this.#admits(client, () => (types > maxTypes ? excess : undefined));
  }

  /** Before names are read. */
  names(range: Buffer | undefined, fields: SelectorFields, client: ClientContext): boolean {
    return this.#admits(client, (limits) => excessOfNames(range, fields, limits));
  }

  /** Before initial_resource_versions are read. */
  versions(range: Buffer | undefined, client: ClientContext): boolean {
    return this.#admits(client, () => excessOfVersions(range));
  }

  /** Before what a request makes of a subscription is acted on. `mustAnswer`: what a response must speak of besides. */
  step(
    type: AdmittedType,
    {
      selection,
      mustAnswer,
    }: { readonly selection: Selection; readonly mustAnswer: readonly SelectionEntry[] },
    client: ClientContext,
  ): boolean {
    const { route, types } = this.#stream;
    // On a per-type service the RPC fails if the client may have nothing of it.
    const deniesAll = route.type === undefined ? undefined : deniedAll(client, type.info, selection);
    if (deniesAll !== undefined) {
      this.#stream.failFor(deniesAll);
      return false;
    }
    const others = types.filter((other) => other !== type);
    const own = { info: type.info, selection };
    return (
      this.#admits(client, (limits) => excessOf(own, others, limits)) &&
      this.#admits(client, (limits) => excessOfOwed(mustAnswer, types, limits)) &&
      this.#sessions(client, [own, ...others])
    );
  }

  /** What the client has subscribed to is the same with other parameters. */
  reselected(client: ClientContext): void {
    this.#sessions(client, this.#stream.types);
  }

  /** How many parameter sets it has taken since this was last asked. */
  takenSessions(): number {
    const taken = this.#newSessions;
    this.#newSessions = 0;
    return taken;
  }

  /**
   * Above the rate, the relay stops reading from this client. HTTP/2 flow control slows it down, and no request is dropped.
   * A change of a subscription with many resources costs as much as many small changes; the first request of a type does
   * not. Each new parameter set costs as much as a change, because a session may be opened for it. `changed`: subscriptions
   * that the client had before.
   */
  spend(changes: number, changed: readonly AdmittedType[]): void {
    const { clock, events, limits } = this.#services;
    const newSessions = this.takenSessions();
    const shown = changed.reduce((sum, { subscription }) => sum + (subscription?.view.items.size ?? 0), 0);
    const now = clock.monotonic();
    this.#rate ??= new Rate(() => limits().changesPerSecond, now);
    const cost = Math.max(changes, newSessions) + Math.floor(shown / shownPerChange);
    const wait = this.#rate.spend(now, cost);
    if (this.#stream.isPaused) return;
    if (wait > 0) events.rejected('rate');
    else if (shown < muchShown && newSessions < manySessions) return;
    // After a large one at least until others have had their turn: one read may have brought many.
    this.#stream.pauseReading(wait);
  }

  close(): void {
    this.#services.sessions?.release(this);
  }

  #admits(client: ClientContext, excess: (limits: StreamLimits) => string | undefined): boolean {
    const message = client.exempt ? undefined : excess(this.#services.limits());
    if (message === undefined) return true;
    this.#stream.failFor(exhausted('subscriptions', message));
    return false;
  }

  /** A peer may use only a part of the upstream sessions, because other peers need some too. */
  #sessions(client: ClientContext, subscribed: readonly Subscribed[]): boolean {
    const { sessions } = this.#services;
    if (client.exempt) {
      sessions?.release(this);
      return true;
    }
    const taken = sessions?.take(this, this.#stream.peer.account, subscribed) ?? 0;
    if (typeof taken === 'string') {
      this.#stream.failFor(exhausted('upstream_sessions', taken, taken));
      return false;
    }
    this.#newSessions += taken;
    return true;
  }
}

/** ADS clients use about ten. Each costs a subscription upstream, and a look at each response. */
const maxTypes = 100;
/** Wildcards and globs of one type may have so many parameter sets: each set shows all resources that match it. */
const maxParameterSets = 16;
/** With its digest an entry has 40 bytes or more: no request that is at most 4 MiB long has so many. */
const maxVersions = 100_000;

/**
 * Why the names of a request are not read: they are more than the limit, so they are only counted. Duplicates count
 * too.
 */
export function excessOfNames(
  range: Buffer | undefined,
  fields: SelectorFields,
  { maxSubscriptions }: StreamLimits,
): string | undefined {
  // A name takes two bytes or more.
  if (range === undefined || range.length <= 2 * maxSubscriptions) return undefined;
  const count = countSelectors(range, fields);
  if (count <= maxSubscriptions) return undefined;
  return `${count} names and locators in one request: at most ${maxSubscriptions} are accepted (limits.max_subscriptions_per_stream)`;
}

/** The same of initial_resource_versions. */
function excessOfVersions(range: Buffer | undefined): string | undefined {
  if (range === undefined || range.length <= 2 * maxVersions) return undefined;
  const count = countVersions(range);
  if (count <= maxVersions) return undefined;
  return `${count} initial_resource_versions in one request: at most ${maxVersions} are accepted`;
}

/** Why a stream that has `others` cannot be subscribed to this, too; undefined: it can. */
export function excessOf(
  own: Subscribed,
  others: Iterable<Subscribed>,
  { maxSubscriptions, maxNamesLength = Number.POSITIVE_INFINITY }: StreamLimits,
): string | undefined {
  const { collections } = own.selection;
  const sets =
    collections.length > maxParameterSets ? new Set(collections.map(({ parameters }) => parameters)).size : 0;
  if (sets > maxParameterSets) {
    return `wildcards and globs with ${sets} sets of dynamic parameters in one type: at most ${maxParameterSets} are accepted`;
  }
  let [count, length] = [0, 0];
  for (const { info, selection } of [own, ...others]) {
    // A type without names is one subscription, too.
    count += Math.max(1, selection.listed.size);
    // By delta requests a client could add to what it names without end.
    length += info.url.length + selection.length;
  }
  if (count > maxSubscriptions) {
    return `${count} subscriptions on one stream: at most ${maxSubscriptions} are accepted (limits.max_subscriptions_per_stream)`;
  }
  if (length > maxNamesLength) {
    return `a stream that is subscribed to ${length} characters of types and names: at most ${maxNamesLength} are accepted, as in one request (limits.max_request_bytes)`;
  }
  return undefined;
}

/**
 * Names that are unsubscribed while a wildcard covers them are kept until a response has said whether they exist. A client
 * that does not read, or whose wildcard is not answered, could add to them without end.
 */
function excessOfOwed(
  added: readonly SelectionEntry[],
  types: readonly AdmittedType[],
  { maxSubscriptions, maxNamesLength = Number.POSITIVE_INFINITY }: StreamLimits,
): string | undefined {
  if (added.length === 0) return undefined;
  const owed = [...added, ...types.flatMap(({ subscription }) => subscription?.owed ?? [])];
  const length = owed.reduce((sum, one) => sum + lengthOf(one), 0);
  if (owed.length <= maxSubscriptions && length <= maxNamesLength) return undefined;
  return `${owed.length} names of ${length} characters were unsubscribed under a wildcard, and no response has said yet whether they exist: at most ${maxSubscriptions} are accepted (limits.max_subscriptions_per_stream), and ${maxNamesLength} characters (limits.max_request_bytes)`;
}

/** A client may have nothing of what it names. */
export function deniedAll(
  { access }: ClientContext,
  { url, short }: TypeInfo,
  selection: Selection,
): Refusal | undefined {
  if (selection.size === 0 || selection.hasCollection) return undefined;
  if (selection.entries.values().some(({ selector }) => access.allows(url, selector))) return undefined;
  return denied(`any of the ${short} resources that it names`);
}

/** One type of a client, as far as it decides whether the client can be served. */
type AskedType = Subscribed & {
  /** Undefined: there is none yet. */
  readonly subscription:
    | { readonly responded: boolean; readonly view: Pick<Subscription['view'], 'allUnknown'> }
    | undefined;
};

/** A response cannot be split: in SotW a part of it would delete the rest at the client. */
export const tooLarge = (short: string, bytes: number, most: number): Refusal =>
  exhausted(
    'response_bytes',
    `a response of ${short} has ${bytes} bytes: at most ${most} are sent (limits.max_response_bytes)`,
  );

/** What is kept for the peer alone is more than it may be. */
export const heldTooMuch = (excess: string | undefined): Refusal | undefined =>
  excess === undefined ? undefined : heldBytes(excess);

/**
 * A stream fails before its first response if nothing that it subscribes to is cached and none of its upstreams can be
 * reached. gRPC clients then see a lost connection and not "does not exist" (protocol §8, Upstream outage).
 */
export function unavailable(
  types: readonly AskedType[],
  services: Pick<DownstreamServices, 'isUnavailable'>,
): Refusal | undefined {
  let isSubscribed = false;
  for (const { info, subscription, selection } of types) {
    if (subscription?.responded === true) return undefined;
    if (selection.size === 0) continue;
    if (subscription?.view.allUnknown !== true) return undefined;
    isSubscribed = true;
    for (const { selector, parameters } of selection.entries.values()) {
      if (!services.isUnavailable({ type: info.url, selector, parameters })) return undefined;
    }
  }
  if (!isSubscribed) return undefined;
  const message = 'no control plane can be reached, and nothing that this stream asks for is cached';
  return { reason: 'cold', status: { code: Code.UNAVAILABLE, message } };
}

/**
 * A control plane that decides by node gets no more sessions than limits.max_upstream_sessions. Silence would look like
 * resources that do not exist, so the stream fails before it says anything. A refused locator gets a resource error
 * instead: the next request may ask for what can be served, of this type or another.
 */
export function refusedUpstream(
  types: readonly AskedType[],
  services: Pick<DownstreamServices, 'refusal'>,
): Refusal | undefined {
  for (const { info, selection } of types) {
    for (const { locator, selector, parameters } of selection.entries.values()) {
      if (locator) continue;
      const message = services.refusal({ type: info.url, selector, parameters });
      if (message === undefined) continue;
      return exhausted('upstream_sessions', message);
    }
  }
  return undefined;
}
