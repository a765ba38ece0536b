import type { Clock, Timer } from '../model/clock.ts';
import { reference } from '../model/resource.ts';
import {
  type Defers,
  defersEverything,
  defersNothing,
  type Removed,
  type Response,
} from '../model/subscription.ts';
import { knownTypes } from '../model/types.ts';
import { consequencesOf } from './clusters.ts';
import type { Conversation, OrderedType } from './conversations.ts';
import type { Overdue } from './services.ts';

const [clusters, endpoints] = ['cds', 'eds'].map(
  (short) => knownTypes.find((info) => info.short === short)?.url,
);
/** The types that route to clusters. */
const routing = new Set(
  knownTypes.filter(({ short }) => ['lds', 'srds', 'rds', 'vhds'].includes(short)).map(({ url }) => url),
);
/** The types that others refer to, and who does. */
const referring: ReadonlyMap<string, readonly string[]> = new Map([
  ['cds', ['lds', 'srds', 'rds', 'vhds', 'ecds']],
  ['eds', ['cds']],
  ['rds', ['lds', 'srds']],
  ['sds', ['cds', 'lds', 'ecds']],
  ['ecds', ['lds', 'srds', 'rds', 'vhds']],
]);
const clusterPrefix = reference('cds', '');

/** How long changed routes of a stream wait for the client to take changed clusters, in milliseconds. */
export const longestWarmingMs = 1000;

/**
 * A client that comes back on ADS asks for all of its types. The first answer waits so long for a type that may refer to
 * what was removed meanwhile. If one comes, removals wait so long for the others. In milliseconds.
 */
const returnMs = { first: 200, others: 2000 };

/** The stream whose types are sent in order, or the client that polls them. */
export interface OrderedStream {
  /** In the order in which types are sent on ADS (protocol §8). */
  readonly types: readonly OrderedType[];
  /** With all types that the client has, those of its other streams included. */
  readonly conversation: Conversation;
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

/** Which type of a stream is sent next, and what waits for what (protocol §8, §10.1). */
export class SendOrder {
  readonly #stream: OrderedStream;
  readonly #clock: Clock;
  /** Changed routes that lead to clusters that have not come yet wait until then. */
  readonly #missingUntil = new Map<OrderedType, { readonly at: number; readonly names: readonly string[] }>();
  #routesWait = false;
  /** When the client came back, with something that others may refer to. */
  #returnedAt: number | undefined;
  #timer: { readonly at: number; readonly timer: Timer } | undefined;

  constructor(stream: OrderedStream, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
  }

  /** Something waits for what the client has not said yet, or not been sent. */
  get isWaiting(): boolean {
    return (
      this.#routesWait ||
      this.#stream.types.some(({ subscription }) => subscription?.hasDeferredRemovals === true)
    );
  }

  /** Sends one response; false: none is due. */
  sendNext(): boolean {
    const { types } = this.#stream;
    let waiting = false;
    /** How many types are due; undefined: not counted yet. */
    let due: number | undefined;
    for (const type of types) {
      if (type.subscription?.pending !== true) continue;
      if (this.#waitsForOthers(type) || this.#waitsForClusters(type)) {
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
    return !waiting && this.#sendDeferredRemovals();
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
    const { types } = this.#stream;
    if (type.info.url !== clusters || response.changed.length === 0) return;
    // Nothing routes to them. A client that comes back may not have asked for its routes yet.
    if (this.#stream.conversation.hasClustersOnly && type.subscription?.resumed !== true) return;
    const { edsToResend, warming, needed } = consequencesOf(response);
    types.find(({ info }) => info.url === endpoints)?.resend(edsToResend);
    const { conversation } = this.#stream;
    this.#settleWarming();
    if (warming && conversation.participants.size > 0)
      for (const one of needed) conversation.warmsWith.push(one);
    // The time is not extended by further clusters: routes would wait as long as clusters keep changing.
    if (warming && this.#stream.conversation.warmingUntil === 0)
      this.#stream.conversation.warmingUntil = this.#clock.now() + this.#stream.warmingMilliseconds;
  }

  /** A request came for this type. */
  requested({ info, subscription }: OrderedType): void {
    const { conversation } = this.#stream;
    if (info.url !== clusters || subscription?.responses.awaitsAnswer === true) return;
    // Envoy accepts clusters before they are warm where their endpoints have streams of their own.
    if (conversation.warmsWith.length > 0 && subscription?.responses.state !== 'ERROR') return;
    this.#areWarm();
  }

  /** On streams of single types: whether the client has accepted what its clusters need. */
  #settleWarming(): void {
    const { conversation } = this.#stream;
    if (conversation.warmsWith.length === 0) return;
    if (!conversation.settle()) return;
    const [all] = conversation.of('cds');
    if (all?.subscription?.responses.awaitsAnswer !== true) this.#areWarm();
  }

  #areWarm(): void {
    const { conversation } = this.#stream;
    conversation.warmingUntil = 0;
    conversation.warmsWith.length = 0;
    conversation.toldWarming = false;
  }

  close(): void {
    this.#timer?.timer.cancel();
  }

  /** Routes were taken that have waited for clusters in vain. */
  #tellOverdue(type: OrderedType): void {
    const missing = this.#missingUntil.get(type);
    this.#missingUntil.delete(type);
    const now = this.#clock.now();
    if (missing !== undefined && missing.at <= now) this.#stream.overdue(type, 'missing', missing.names);
    if (
      this.#stream.conversation.toldWarming ||
      this.#stream.conversation.warmingUntil === 0 ||
      this.#stream.conversation.warmingUntil > now
    )
      return;
    this.#stream.conversation.toldWarming = true;
    this.#stream.overdue(type, 'warming', []);
  }

  /** Removals are sent in the reverse order: a listener before the clusters that it routes to. */
  #sendDeferredRemovals(): boolean {
    const { types } = this.#stream;
    for (let index = types.length - 1; index >= 0; index--) {
      const type = types[index];
      if (type?.subscription?.hasDeferredRemovals === true && this.#send(type, false)) return true;
    }
    return false;
  }

  #send(type: OrderedType, defersAll: boolean): boolean {
    if (defersAll) return this.#stream.send(type, defersEverything);
    const grace = this.#stream.removalGraceMilliseconds;
    const by = referring.get(type.info.short);
    const { conversation } = this.#stream;
    if (grace === 0 || by === undefined || this.#stream.isRelay)
      return this.#stream.send(type, defersNothing);
    const overdue: string[] = [];
    const now = this.#clock.now();
    const sent = this.#stream.send(type, (removed) => {
      const until = (removed.since ?? now) + grace;
      const others = by.flatMap((short) => conversation.of(short));
      const isBackUntil = others.length > 0 && isFromEarlierStream(removed) ? this.#isBackUntil(now) : now;
      if (isBackUntil > now) {
        this.#wakeAt(isBackUntil);
        return true;
      }
      if (!others.some((other) => mayReferTo(other, type, removed))) return false;
      if (until > now) this.#wakeAt(until);
      else overdue.push(removed.variant.name);
      return until > now;
    });
    if (sent && overdue.length > 0) this.#stream.overdue(type, 'removal', overdue);
    return sent;
  }

  /** Streams of single types come back one by one: nobody knows when the last one has. */
  #isBackUntil(now: number): number {
    if (this.#stream.conversation.participants.size > 0) return now;
    return (this.#returnedAt ?? now) + Math.min(returnMs.others, this.#stream.removalGraceMilliseconds);
  }

  /** What a client that comes back has may be removed at once, unless it has types that refer to it. */
  #waitsForOthers({ info, subscription }: OrderedType): boolean {
    const by = referring.get(info.short);
    if (subscription?.resumed !== true || subscription.responded || by === undefined) return false;
    const { conversation, isRelay, removalGraceMilliseconds, route } = this.#stream;
    // In SotW it does not say what it has.
    if (
      route.protocol === 'sotw' ||
      isRelay ||
      removalGraceMilliseconds === 0 ||
      conversation.participants.size > 0
    )
      return false;
    const now = this.#clock.now();
    this.#returnedAt ??= now;
    if (by.some((short) => conversation.of(short).length > 0)) return false;
    const until = this.#returnedAt + returnMs.first;
    if (until > now) this.#wakeAt(until);
    return until > now;
  }

  /**
   * Envoy uses a cluster once it is warm, and it warms with its endpoints. A route that comes before fails requests. So
   * changed routes wait until the client has accepted the clusters, and until clusters have come that they newly lead
   * to, but not for ever (protocol §3.11): some clusters never get warm, and some are not the relay's.
   */
  #waitsForClusters(type: OrderedType): boolean {
    const { info, subscription } = type;
    if (!routing.has(info.url) || this.#stream.isRelay) return false;
    if (subscription?.hasState !== true || !subscription.due) return false;
    this.#settleWarming();
    const now = this.#clock.now();
    const until = Math.max(this.#stream.conversation.warmingUntil, this.#missing(type, now));
    if (until === 0) return false;
    if (until > now) this.#wakeAt(until);
    return until > now;
  }

  /** Until when a type waits for clusters that the client does not have; 0: it has all. */
  #missing(type: OrderedType, now: number): number {
    const all = this.#stream.conversation.of('cds')[0]?.subscription;
    // Who names its clusters asks for them once it has the routes.
    if (this.#stream.removalGraceMilliseconds === 0 || all?.selection.hasCollection !== true) return 0;
    const names: string[] = [];
    for (const one of type.subscription?.newReferences() ?? []) {
      if (!one.startsWith(clusterPrefix)) continue;
      const name = one.slice(clusterPrefix.length);
      if (!all.has(name)) names.push(name);
    }
    if (names.length === 0) {
      this.#missingUntil.delete(type);
      return 0;
    }
    const at = this.#missingUntil.get(type)?.at ?? now + this.#stream.warmingMilliseconds;
    this.#missingUntil.set(type, { at, names });
    return at;
  }

  #wakeAt(moment: number): void {
    if (this.#timer !== undefined && this.#timer.at <= moment) return;
    this.#timer?.timer.cancel();
    const timer = this.#clock.after(moment - this.#clock.now(), () => {
      this.#timer = undefined;
      this.#stream.pump();
    });
    this.#timer = { at: moment, timer };
  }

  #isOrdered({ info }: OrderedType): boolean {
    return this.#stream.route.protocol === 'delta' || info.short === 'cds' || info.short === 'lds';
  }
}

/** What the client has of another type refers to this, or may: it has not taken and accepted what it has now. */
function mayReferTo({ subscription }: OrderedType, type: OrderedType, removed: Removed): boolean {
  if (subscription === undefined) return false;
  const { variant, spelling } = removed;
  const { responses } = subscription;
  if (subscription.due || responses.awaitsAnswer || responses.state === 'ERROR') return true;
  if (subscription.pending && subscription.hasState) return true;
  // Of what is deferred with it nothing but names is known.
  if (isFromEarlierStream(removed) && subscription.hasDeferredRemovals) return true;
  const { short } = type.info;
  return (
    subscription.refersTo(reference(short, variant.name)) ||
    (spelling !== variant.name && subscription.refersTo(reference(short, spelling)))
  );
}

/** The client said that it has it: its body is not known. */
const isFromEarlierStream = ({ variant }: Removed): boolean => variant.payload === undefined;

function dueIn(types: readonly OrderedType[]): number {
  let count = 0;
  for (const { subscription } of types) if (subscription?.due === true) count++;
  return count;
}
