import type { Clock, Timer } from '../model/clock.ts';
import type { Response } from '../model/subscription.ts';
import { knownTypes } from '../model/types.ts';
import { consequencesOf } from './clusters.ts';
import type { TypeStream } from './type-stream.ts';

const [clusters, endpoints] = ['cds', 'eds'].map(
  (short) => knownTypes.find((info) => info.short === short)?.url,
);
/** The types that route to clusters. */
const routing = new Set(
  knownTypes.filter(({ short }) => ['lds', 'srds', 'rds', 'vhds'].includes(short)).map(({ url }) => url),
);
/** How long changed routes wait for the client to take changed clusters, in milliseconds. */
const longestWarmingMs = 1000;

/** The stream whose types are sent in order. */
export interface OrderedStream {
  /** In the order in which types are sent on ADS (protocol §8). */
  readonly types: readonly TypeStream[];
  readonly route: { readonly protocol: 'sotw' | 'delta' };
  /** The client is a relay: it routes no requests. */
  readonly isRelay: boolean;
  /** Sends what is due for a type; false: nothing is. */
  send(type: TypeStream, deferRemovals: boolean): boolean;
  pump(): void;
}

/** Which type of a stream is sent next, and what waits for what (protocol §8, §10.1). */
export class SendOrder {
  readonly #stream: OrderedStream;
  readonly #clock: Clock;
  /** Clusters were sent that the client has not accepted yet: until then changed routes wait. 0: all are. */
  #warmingUntil = 0;
  #warmed: Timer | undefined;

  constructor(stream: OrderedStream, clock: Clock) {
    this.#stream = stream;
    this.#clock = clock;
  }

  /** Sends one response; false: none is due. */
  sendNext(): boolean {
    const { types } = this.#stream;
    let waiting = false;
    /** How many types are due; undefined: not counted yet. */
    let due: number | undefined;
    for (const type of types) {
      if (type.subscription?.pending !== true) continue;
      if (this.#waitsForClusters(type)) {
        waiting = true;
        continue;
      }
      let deferRemovals = false;
      if (types.length > 1 && this.#isOrdered(type)) {
        // Additions first, and removals when nothing else is due: no route may point to a cluster that is gone (§8).
        due ??= dueIn(types);
        deferRemovals = due > (type.subscription.due ? 1 : 0);
      }
      if (this.#stream.send(type, deferRemovals)) return true;
      due = undefined; // what had nothing to say is not due any more
    }
    return !waiting && this.#sendDeferredRemovals();
  }

  /** A response was taken for this type. */
  taken({ info }: TypeStream, response: Response): void {
    const { types } = this.#stream;
    if (info.url !== clusters || types.length < 2 || response.changed.length === 0) return;
    const { edsToResend, warming } = consequencesOf(response);
    types.find((type) => type.info.url === endpoints)?.resend(edsToResend);
    // The time is not extended by further clusters: routes would wait as long as clusters keep changing.
    if (warming && this.#warmingUntil === 0) this.#warmingUntil = this.#clock.now() + longestWarmingMs;
  }

  /** A request came for this type. */
  requested({ info, subscription }: TypeStream): void {
    if (info.url === clusters && subscription?.responses.awaitsAnswer !== true) this.#warmingUntil = 0;
  }

  close(): void {
    this.#warmed?.cancel();
  }

  /** Removals are sent in the reverse order: a listener before the clusters that it routes to. */
  #sendDeferredRemovals(): boolean {
    const { types } = this.#stream;
    for (let index = types.length - 1; index >= 0; index--) {
      const type = types[index];
      if (type?.subscription?.hasDeferredRemovals === true && this.#stream.send(type, false)) return true;
    }
    return false;
  }

  /**
   * Envoy uses a cluster once it is warm, and it warms with its endpoints. A route that comes before fails requests. So
   * changed routes wait until the client has accepted the clusters, but not for ever (protocol §3.11), because some
   * clusters never get warm.
   */
  #waitsForClusters({ info, subscription }: TypeStream): boolean {
    if (this.#warmingUntil === 0 || !routing.has(info.url) || this.#stream.isRelay) return false;
    if (subscription?.responded !== true || !subscription.due) return false;
    const left = this.#warmingUntil - this.#clock.now();
    if (left <= 0) return false;
    this.#warmed ??= this.#clock.after(left, () => {
      this.#warmed = undefined;
      this.#stream.pump();
    });
    return true;
  }

  #isOrdered({ info }: TypeStream): boolean {
    return this.#stream.route.protocol === 'delta' || info.short === 'cds' || info.short === 'lds';
  }
}

function dueIn(types: readonly TypeStream[]): number {
  let count = 0;
  for (const { subscription } of types) if (subscription?.due === true) count++;
  return count;
}
