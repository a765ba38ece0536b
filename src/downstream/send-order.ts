import { resourceName, type TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { clusterFacts } from '../model/cluster.ts';
import { deleteIn, getOrMake, lazily, onceFor } from '../model/maps.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { type Reference, reference } from '../model/resource.ts';
import { itemId } from '../model/selection.ts';
import {
  type ChangedVariant,
  type Defers,
  defersEverything,
  defersNothing,
  type Removed,
  type ResendItems,
  type Response,
} from '../model/subscription.ts';
import { knownTypes } from '../model/types.ts';
import type { Account } from '../wire/accounts.ts';
import { referencesOf } from '../wire/references.ts';
import type { Overdue } from './stream-metrics.ts';
import type { TypeStream } from './type-stream.ts';

const [clusters, endpoints, localityEndpoints] = ['cds', 'eds', 'leds'].map(
  (short) => knownTypes.find((info) => info.short === short)?.url,
);
/** The types that route to clusters. */
const routing = new Set(
  knownTypes.filter(({ short }) => ['lds', 'srds', 'rds', 'vhds'].includes(short)).map(({ url }) => url),
);
const clusterPrefix = reference('cds', '');
const globPrefix = reference('leds', '');
const none: readonly never[] = [];
const noItems: ReadonlySet<string> = new Set();

/** How long changed routes of a stream wait for the client to take changed clusters, in milliseconds. */
export const longestWarmingMs = 1000;

/** A client that comes back on ADS asks for all of its types: what was removed meanwhile waits so long, in milliseconds. */
const returnMs = 2000;

/** The stream whose types are sent in order, or the client that polls them. */
export interface OrderedStream {
  readonly route: { readonly protocol: string };
  /** The client is a relay: it routes no requests. */
  readonly isRelay: boolean;
  /** So long the client keeps what it still refers to, in milliseconds; 0: not at all. */
  readonly removalGraceMilliseconds: number;
  /** So long changed routes wait for the client to take changed clusters, in milliseconds. */
  readonly warmingMilliseconds: number;
  /** Sends what is due for a type; false: nothing is. */
  send(type: OrderedType, defers: Defers): boolean;
  pump(): void;
  /** `names`: some of what is concerned. */
  overdue(type: OrderedType, what: Overdue, names: readonly string[]): void;
}

/** The types that others refer to, and who does. */
const referring: ReadonlyMap<string, readonly string[]> = new Map([
  ['cds', ['lds', 'srds', 'rds', 'vhds', 'ecds']],
  ['eds', ['cds']],
  ['rds', ['lds', 'srds']],
  ['sds', ['cds', 'lds', 'ecds']],
  ['ecds', ['lds', 'srds', 'rds', 'vhds']],
]);

/** Types of which resources refer to others. */
export const referringTypes: ReadonlySet<string> = new Set([...referring.values()].flat());

/** One type of a client, as other types wait for it. */
export type OrderedType = Pick<TypeStream, 'info' | 'subscription' | 'resend'>;

/** What has a type of one client: the stream of a service of a single type. */
export type Participant = Pick<SendOrder, 'types' | 'resume'>;

/** What waits for others looks at all of them. Further streams of the client, or polls, wait for these no more. */
export const mostParticipants = 1000;

/** The canonical names of a type that a client polls and whose answer it has accepted; undefined: it does not poll the type. */
export type AcceptedNames = (short: string) => ReadonlySet<string> | undefined;

/** What one client is told, on one ADS stream, on streams of single types, or in answers to its polls. */
export class Conversation {
  /** The streams for single types. Undefined on ADS: there are as many of these conversations as clients. */
  #apart:
    | {
        readonly all: Set<Participant>;
        /** Those that go on when another stream hears something. */
        readonly waiting: Set<Participant>;
        /** By short name. None of a type: the client had its time, and does not ask for it here. */
        readonly byType: Map<string, Set<OrderedType>>;
      }
    | undefined;
  /** Clusters were sent that the client has not accepted yet: until then changed routes wait. 0: all are. */
  warmingUntil = 0;
  /** What those clusters need and the client has not accepted yet. None on ADS: there they are accepted when they are warm. */
  readonly #needed = new Set<Reference>();
  /** Routes were sent although the clusters before them are not accepted, and that was told. */
  toldWarming = false;
  /** Grows with all that may change what its types refer to. */
  heard = 0;
  /** All of an ADS stream, or of a client that polls. */
  readonly #own: readonly OrderedType[];
  readonly #polled: AcceptedNames | undefined;
  /** Its last participant has gone. */
  readonly #over: (() => void) | undefined;

  /** `polled`: of a client that polls. */
  constructor(own: readonly OrderedType[] = [], polled?: AcceptedNames, over?: () => void) {
    this.#own = own;
    this.#polled = polled;
    this.#over = over;
  }

  /** How many streams it has for single types: an Envoy has one for each cluster's endpoints. */
  get participants(): number {
    return this.#apart?.all.size ?? 0;
  }

  /** The client accepts clusters before they are warm: it asks for what they need elsewhere. */
  get asksApart(): boolean {
    return this.participants > 0 || this.#polled !== undefined;
  }

  /** What the client has of a type: several times if streams have some names each. */
  of(short: string): readonly OrderedType[] {
    if (this.participants === 0) return this.#own.filter(({ info }) => info.short === short);
    return [...(this.#apart?.byType.get(short) ?? [])];
  }

  /** Whether the client has nothing but clusters, as far as something may refer to them. */
  get hasClustersOnly(): boolean {
    const byType = this.#apart?.byType;
    if (this.participants === 0 || byType === undefined) return this.#own.length < 2;
    return referringTypes.keys().every((short) => short === 'cds' || !byType.has(short));
  }

  /** Clusters that were sent need these until they are warm. */
  needs(wanted: readonly Reference[]): void {
    for (const one of wanted) this.#needed.add(one);
  }

  get needsSome(): boolean {
    return this.#needed.size > 0;
  }

  /** Of what clusters need, forgets what the client has accepted. False: some is left. */
  settle(): boolean {
    const polled = new Map<string, ReadonlySet<string> | undefined>();
    for (const wanted of this.#needed) {
      if (!this.#hasAccepted(wanted, polled)) return false;
      this.#needed.delete(wanted);
    }
    return true;
  }

  areWarm(): void {
    this.warmingUntil = 0;
    this.#needed.clear();
    this.toldWarming = false;
  }

  /** Their time is over: what comes next is waited for anew. */
  giveUp(): void {
    const byType = this.#apart?.byType;
    if (byType !== undefined)
      for (const wanted of this.#needed) getOrMake(byType, shortOf(wanted), () => new Set());
    this.areWarm();
  }

  /** Whether the client has accepted a resource that it does not ask for on ADS. `known`: what it polls, by short name. */
  #hasAccepted(wanted: Reference, known: Map<string, ReadonlySet<string> | undefined>): boolean {
    const short = shortOf(wanted);
    const name = resourceName(wanted.slice(short.length + 1));
    if (this.#polled !== undefined) {
      if (!known.has(short)) known.set(short, this.#polled(short));
      return known.get(short)?.has(name) !== false;
    }
    const all = this.#apart?.byType.get(short);
    if (all?.size === 0) return true;
    const hasIt = ({ subscription }: OrderedType): boolean =>
      subscription?.has(name) === true && !subscription.responses.awaitsAnswer;
    return all?.values().some(hasIt) === true;
  }

  add(participant: Participant): void {
    this.#apart ??= { all: new Set(), waiting: new Set(), byType: new Map() };
    const { all, byType } = this.#apart;
    this.heard++;
    all.add(participant);
    for (const type of participant.types) getOrMake(byType, type.info.short, () => new Set()).add(type);
  }

  remove(participant: Participant): void {
    const apart = this.#apart;
    if (apart === undefined) return;
    this.heard++;
    apart.all.delete(participant);
    apart.waiting.delete(participant);
    for (const type of participant.types) deleteIn(apart.byType, type.info.short, type);
    if (apart.all.size === 0) this.#over?.();
  }

  /** Whether a participant goes on when another has heard something. */
  waits(participant: Participant, isWaiting: boolean): void {
    const apart = this.#apart;
    if (!isWaiting) apart?.waiting.delete(participant);
    else if (apart?.all.has(participant) === true) apart.waiting.add(participant);
  }

  resumeOthers(participant: Participant): void {
    for (const other of [...(this.#apart?.waiting ?? [])]) if (other !== participant) other.resume();
  }
}

/**
 * The conversations with clients that have a stream for each type: those of one node at one peer. Clients that share a
 * node id behind one address are taken for one: what they wait for has bounds.
 */
export class Conversations {
  readonly #all = new Map<Account, Map<string, Conversation>>();

  join(participant: Participant, account: Account, nodeId: string): Conversation {
    const ofPeer = getOrMake(this.#all, account, () => new Map());
    const over = (): void => void deleteIn(this.#all, account, nodeId);
    const known = getOrMake(ofPeer, nodeId, () => new Conversation([], undefined, over));
    const conversation = known.participants < mostParticipants ? known : new Conversation();
    conversation.add(participant);
    return conversation;
  }
}

/** Which type of a stream is sent next, and what waits for what (protocol §8, §10.1). */
export class SendOrder {
  readonly #stream: OrderedStream;
  /** Of the stream, in the order in which they are sent on ADS (protocol §8). */
  readonly types: readonly OrderedType[];
  /** With all types that the client has, those of its other streams included. */
  conversation: Conversation;
  readonly #clock: Clock;
  /** Until when changed routes wait, and for which clusters that have not come; undefined: none has waited yet. */
  #waits:
    | WeakMap<
        OrderedType,
        { longest: number; missingUntil: number | undefined; until: number; names: readonly string[] }
      >
    | undefined;
  #routesWait = false;
  /** What was known when the removals that a type has deferred were looked at: none of them goes before `until`. */
  #looked: WeakMap<OrderedType, { heard: number; grace: number; until: number }> | undefined;
  /**
   * Delta: the EDS items of clusters that were sent to a client that came back, until it asks for endpoints or has answered
   * the clusters (protocol §10.1).
   */
  #neededBefore: ReadonlySet<string> = noItems;
  #timer: { readonly at: number; readonly timer: Timer } | undefined;

  constructor(
    stream: OrderedStream,
    types: readonly OrderedType[],
    clock: Clock,
    conversation = new Conversation(types),
  ) {
    this.#stream = stream;
    this.types = types;
    this.conversation = conversation;
    this.#clock = clock;
  }

  /** Something waits for what the client has not said yet, or not been sent. */
  get #isWaiting(): boolean {
    return (
      this.#routesWait || this.types.some(({ subscription }) => subscription?.hasDeferredRemovals === true)
    );
  }

  /** Another stream of the client has heard something: what waits for that may go. */
  resume(): void {
    if (this.#isWaiting) this.#stream.pump();
  }

  /** The client's other streams may wait for what this one has heard. On ADS there are none. */
  resumeOthers(): void {
    const { conversation } = this;
    if (conversation.warmingUntil > 0 || this.types.some(({ info }) => referringTypes.has(info.short)))
      conversation.resumeOthers(this);
  }

  /** Sends one response; false: none is due. */
  sendNext(): boolean {
    const types = this.types;
    let waiting = false;
    /** How many types are due; undefined: not counted yet. */
    let due: number | undefined;
    for (const type of types) {
      if (type.subscription?.pending !== true) continue;
      if (this.#waitsForClusters(type)) {
        waiting = true;
        continue;
      }
      let defersAll = false;
      if (types.length > 1 && this.#isOrdered(type)) {
        // Additions first, and removals when nothing else is due: no route may point to a cluster that is gone (§8).
        due ??= dueIn(types);
        defersAll = due > (type.subscription.due ? 1 : 0);
      }
      if (this.#send(type, defersAll)) return true;
      due = undefined; // what had nothing to say is not due any more
    }
    this.#routesWait = waiting;
    if (!waiting && this.#sendDeferredRemovals()) return true;
    if (this.conversation.participants > 0) this.conversation.waits(this, this.#isWaiting);
    return false;
  }

  /** For a client that asks for one type at a time. */
  sendOf(type: OrderedType): 'sent' | 'waits' | 'nothing' {
    const { subscription } = type;
    if (subscription === undefined) return 'nothing';
    if (subscription.pending && this.#waitsForClusters(type)) return 'waits';
    if ((subscription.pending || subscription.hasDeferredRemovals) && this.#send(type, false)) return 'sent';
    return subscription.hasDeferredRemovals ? 'waits' : 'nothing';
  }

  /** A response was taken for this type. */
  taken(type: OrderedType, response: Response): void {
    if (routing.has(type.info.url)) this.#tellOverdue(type);
    if (response.changed.length === 0) return;
    if (type.info.url === endpoints) {
      const asked = this.#askedFor(localityEndpoints);
      if (asked !== undefined) asked.resend(globsToResend(response));
    }
    if (type.info.url !== clusters) return;
    // Nothing routes to them. A client that comes back may not have asked for its routes yet.
    if (this.conversation.hasClustersOnly && type.subscription?.resumed !== true) return;
    const { edsToResend, warming, needed } = consequencesOf(response);
    const asked = this.#askedFor(endpoints);
    if (asked !== undefined) asked.resend(edsToResend);
    else if (this.#mayAskLater(type)) this.#neededBefore = this.#neededBefore.union(edsToResend);
    const { conversation } = this;
    if (!warming) return;
    const now = this.#clock.monotonic();
    // The time is not extended by further clusters: routes would wait as long as clusters keep changing.
    if (conversation.warmingUntil === 0) conversation.warmingUntil = now + this.#stream.warmingMilliseconds;
    if (conversation.asksApart && conversation.warmingUntil > now) conversation.needs(needed);
  }

  #askedFor(url: TypeUrl | undefined): OrderedType | undefined {
    return this.types.find(({ info, subscription }) => info.url === url && subscription !== undefined);
  }

  /** On ADS a delta client that comes back asks for all of its types, and says what it has of them. */
  #mayAskLater({ subscription }: OrderedType): boolean {
    const isOnAds = this.conversation.participants === 0;
    return isOnAds && this.#stream.route.protocol === 'delta' && subscription?.resumed === true;
  }

  /** A request came for this type. */
  requested(type: OrderedType): void {
    const { info, subscription } = type;
    const { conversation } = this;
    if (referringTypes.has(info.short)) conversation.heard++;
    if (info.url === endpoints && this.#neededBefore.size > 0) {
      type.resend(this.#neededBefore);
      this.#neededBefore = noItems;
    }
    if (info.url !== clusters || subscription?.responses.awaitsAnswer === true) return;
    this.#neededBefore = noItems;
    // Envoy accepts clusters before they are warm where their endpoints have streams of their own.
    if (conversation.needsSome && subscription?.responses.state !== 'ERROR') return;
    conversation.areWarm();
  }

  /** On streams of single types, and of polls: whether the client has accepted what its clusters need. */
  #settleWarming(): void {
    const { conversation } = this;
    if (!conversation.needsSome || !conversation.settle()) return;
    if (!this.#awaitsClusters) conversation.areWarm();
  }

  /** The same, before further clusters are sent. What accepted ones still need after their time is not waited for. */
  #settleEarlier(): void {
    this.#settleWarming();
    const { conversation } = this;
    const isOver = conversation.asksApart && conversation.warmingUntil <= this.#clock.monotonic();
    if (isOver && !this.#awaitsClusters) conversation.giveUp();
  }

  /** The client has not answered its last clusters. */
  get #awaitsClusters(): boolean {
    return this.#clusters?.responses.awaitsAnswer === true;
  }

  /** The wildcard of clusters, if the client has one: it may have some of them by name besides. */
  get #clusters(): OrderedType['subscription'] {
    const all = this.conversation.of('cds');
    return (all.find(({ subscription }) => subscription?.view.selection.hasCollection) ?? all[0])
      ?.subscription;
  }

  close(): void {
    this.#timer?.timer.cancel();
    this.conversation.remove(this);
    this.resumeOthers();
  }

  forget(type: OrderedType): void {
    this.#waits?.delete(type);
  }

  /** Routes were taken that have waited for clusters in vain. */
  #tellOverdue(type: OrderedType): void {
    const waited = this.#waits?.get(type);
    this.#waits?.delete(type);
    const now = this.#clock.monotonic();
    if (waited !== undefined && waited.names.length > 0 && waited.until <= now)
      this.#stream.overdue(type, 'missing', waited.names);
    const { conversation } = this;
    const since = Math.min(conversation.warmingUntil, waited?.until ?? Number.POSITIVE_INFINITY);
    if (conversation.toldWarming || conversation.warmingUntil === 0 || since > now) return;
    conversation.toldWarming = true;
    this.#stream.overdue(type, 'warming', []);
  }

  /** Removals are sent in the reverse order: a listener before the clusters that it routes to. */
  #sendDeferredRemovals(): boolean {
    const types = this.types;
    for (let index = types.length - 1; index >= 0; index--) {
      const type = types[index];
      if (type?.subscription?.hasDeferredRemovals !== true || this.#keepsAll(type)) continue;
      if (this.#send(type, false)) return true;
    }
    return false;
  }

  /** All that it has deferred stays, as when it was looked at: it may be thousands, and each ACK and update asks. */
  #keepsAll(type: OrderedType): boolean {
    const { heard, grace, until = 0 } = this.#looked?.get(type) ?? {};
    const isKnown = heard === this.conversation.heard && grace === this.#stream.removalGraceMilliseconds;
    if (!isKnown || until <= this.#clock.monotonic() || type.subscription?.pending === true) return false;
    this.#wakeAt(until);
    return true;
  }

  #send(type: OrderedType, defersAll: boolean): boolean {
    const isPending = type.subscription?.pending === true;
    if (isPending && type.info.url === clusters) this.#settleEarlier();
    const sent = this.#sendBut(type, defersAll);
    if ((sent || isPending) && referringTypes.has(type.info.short)) this.conversation.heard++;
    return sent;
  }

  /** All but the removals that are deferred. */
  #sendBut(type: OrderedType, defersAll: boolean): boolean {
    this.#looked?.delete(type);
    if (defersAll) return this.#stream.send(type, defersEverything);
    const grace = this.#stream.removalGraceMilliseconds;
    const by = referring.get(type.info.short);
    const { conversation } = this;
    if (grace === 0 || by === undefined || this.#stream.isRelay)
      return this.#stream.send(type, defersNothing);
    const overdue: string[] = [];
    const now = this.#clock.monotonic();
    // Once for all that is removed: a client may have thousands of both.
    const others = lazily(() => by.flatMap((short) => conversation.of(short)));
    const areSettled = lazily(() => others().every(isSettled));
    let earliest = Number.POSITIVE_INFINITY;
    const keep = (until: number): true => {
      earliest = Math.min(earliest, until);
      return true;
    };
    const sent = this.#stream.send(type, (removed) => {
      const since = removed.since ?? now;
      const until = since + grace;
      // Streams of single types come back one by one: nobody knows when the last one has.
      if (isFromEarlierStream(removed) && conversation.participants === 0) {
        const isBackAt = since + Math.min(returnMs, grace);
        if (isBackAt > now) return keep(isBackAt);
      }
      if (areSettled() && !others().some((other) => mayReferTo(other, type, removed))) return false;
      if (until > now) return keep(until);
      overdue.push(removed.variant.name);
      return false;
    });
    if (earliest < Number.POSITIVE_INFINITY) {
      this.#wakeAt(earliest);
      this.#looked ??= new WeakMap();
      this.#looked.set(type, { heard: conversation.heard, grace, until: earliest });
    }
    if (sent && overdue.length > 0) this.#stream.overdue(type, 'removal', overdue);
    return sent;
  }

  /**
   * Envoy uses a cluster once it is warm, and it warms with its endpoints. A route that comes before fails requests. So
   * changed routes wait until the client has accepted the clusters, and until clusters have come that they newly lead
   * to, but not for ever (protocol §3.11): some clusters never get warm, and some are not the relay's.
   */
  #waitsForClusters(type: OrderedType): boolean {
    if (!this.#hasRoutesToTell(type)) return false;
    this.#settleWarming();
    const now = this.#clock.monotonic();
    const { warmingUntil } = this.conversation;
    const names = this.#missing(type);
    if (names.length === 0 && warmingUntil <= now) {
      this.#waits?.delete(type);
      return false;
    }
    const { warmingMilliseconds } = this.#stream;
    const before = this.#waits?.get(type);
    // Once for them to come, and once for the client to take them: clusters may change as long as they like.
    const longest = before?.longest ?? now + 2 * warmingMilliseconds;
    const isMissing = names.length > 0;
    const missingUntil = isMissing ? (before?.missingUntil ?? now + warmingMilliseconds) : undefined;
    const until = Math.min(longest, Math.max(missingUntil ?? 0, warmingUntil));
    this.#waits ??= new WeakMap();
    this.#waits.set(type, { longest, missingUntil, until, names });
    if (until > now) this.#wakeAt(until);
    return until > now;
  }

  #hasRoutesToTell({ info, subscription }: OrderedType): boolean {
    if (!routing.has(info.url) || this.#stream.isRelay) return false;
    return subscription?.hasState === true && subscription.due;
  }

  /** Clusters that a type newly leads to, and that the client does not have. */
  #missing(type: OrderedType): readonly string[] {
    const all = this.#clusters;
    // Who names its clusters asks for them once it has the routes.
    if (this.#stream.removalGraceMilliseconds === 0 || all?.view.selection.hasCollection !== true)
      return none;
    const names: string[] = [];
    for (const one of type.subscription?.newReferences() ?? []) {
      if (!one.startsWith(clusterPrefix)) continue;
      const name = resourceName(one.slice(clusterPrefix.length));
      if (!all.has(name)) names.push(name);
    }
    return names;
  }

  #wakeAt(moment: number): void {
    if (this.#timer !== undefined && this.#timer.at <= moment) return;
    this.#timer?.timer.cancel();
    const timer = this.#clock.after(moment - this.#clock.monotonic(), () => {
      this.#timer = undefined;
      this.#stream.pump();
    });
    this.#timer = { at: moment, timer };
  }

  #isOrdered({ info }: OrderedType): boolean {
    return this.#stream.route.protocol === 'delta' || info.short === 'cds' || info.short === 'lds';
  }
}

/** The client has taken and accepted what there is of a type. If not, it may refer to anything. */
function isSettled({ subscription }: OrderedType): boolean {
  if (subscription === undefined) return true;
  const { responses } = subscription;
  if (subscription.due || responses.awaitsAnswer || responses.state === 'ERROR') return false;
  return !(subscription.pending && subscription.hasState);
}

/** What the client has of another type, that is settled, refers to this, or may. */
function mayReferTo({ subscription }: OrderedType, type: OrderedType, removed: Removed): boolean {
  if (subscription === undefined) return false;
  const { variant, requestedName } = removed;
  // Of what is deferred with it nothing but names is known.
  if (isFromEarlierStream(removed) && subscription.hasDeferredRemovals) return true;
  const { short } = type.info;
  return (
    subscription.refersTo(reference(short, variant.name)) ||
    (requestedName !== variant.name && subscription.refersTo(reference(short, requestedName)))
  );
}

const shortOf = (one: Reference): string => one.slice(0, one.indexOf(' '));

/** The client said that it has it: its body is not known. */
const isFromEarlierStream = ({ variant }: Removed): boolean => variant.payload === undefined;

function dueIn(types: readonly OrderedType[]): number {
  let count = 0;
  for (const { subscription } of types) if (subscription?.due === true) count++;
  return count;
}

/** What follows from the clusters of a CDS response, which has at least one. Computed once for all that get it. */
export const consequencesOf = onceFor((response: Response) => {
  const changed = response.changed.map(({ now }) => now);
  const facts = changed.map(clusterFacts);
  return {
    /**
     * The EDS items that they call for: Envoy warms a changed cluster anew and waits for its endpoints, and in delta does
     * not ask for them (protocol §10.1).
     */
    edsToResend: new Set(facts.map(({ service }) => itemId(false, NO_PARAMETERS, service))),
    /** A client takes some time until it can use some of them: they need endpoints, addresses or a health check first. */
    warming: facts.some(({ warms }) => warms),
    /** The endpoints and secrets that they need for that. */
    needed: [
      ...facts.filter(({ hasEds }) => hasEds).map(({ service }) => reference('eds', service)),
      ...changed.flatMap((one) => [...referencesOf(one)].filter((to) => to.startsWith('sds '))),
    ],
  };
});

/**
 * The LEDS globs that endpoints newly lead to: all of them, where the client takes the endpoints in anew for a changed
 * cluster. That waits for their members as it does for its endpoints, and Envoy does not ask for them again. Computed once
 * for all that get the response, and only where somebody asks for LEDS.
 */
const globsToResend = onceFor(({ changed }: Response): ResendItems => {
  const globs = changed.flatMap(newReferences).filter((to) => to.startsWith(globPrefix));
  return new Set(globs.map((to) => itemId(false, NO_PARAMETERS, to.slice(globPrefix.length))));
});

function newReferences({ now, before }: ChangedVariant): readonly Reference[] {
  if (before === 'unknown') return none;
  const references = referencesOf(now);
  return [...(before === undefined ? references : references.difference(referencesOf(before)))];
}
