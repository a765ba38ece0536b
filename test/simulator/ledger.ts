import type { LoadStream, LoadStreamHandler, LoadTarget, LoadUpstream } from '../../src/model/load.ts';
import { type Parameters, parametersOf } from './constraints.ts';
import { type Asked, add, difference, type Numbers, only, readAsked, readReport } from './load-messages.ts';
import type { Call } from './network.ts';
import { Violation } from './violation.ts';

/** What a relay was told by clients for one session, and what it told the control plane. */
class SessionBook {
  readonly relay: string;
  /** What the control plane asks for; undefined: it has not asked yet. */
  asked: Asked | undefined;
  /** The stream to the control plane takes reports. */
  isUp = false;
  readonly received: Numbers = new Map();
  /** Written, while the stream was open. */
  readonly handed: Numbers = new Map();
  /** On their way to be written. */
  readonly writing = new Set<Numbers>();
  /** What the control plane knows to be open. */
  shown: Numbers = new Map();

  constructor(relay: string) {
    this.relay = relay;
  }

  /** What it was told and has not handed over. */
  get left(): Numbers {
    const left = new Map(this.received);
    for (const sent of [this.handed, ...this.writing])
      for (const [key, value] of sent) left.set(key, (left.get(key) ?? 0) - value);
    return left;
  }
}

const nothing: Numbers = new Map();

/**
 * Rule 10: what clients have reported to a relay is what it hands to its control plane. Each report is counted by whom it
 * reaches, in numbers of its own reading.
 */
export class Ledger {
  /** The sessions of relays that run, by relay and parameters. */
  readonly #sessions = new Map<string, SessionBook>();
  /** By client's stream at a relay: for which session its last report was, and what is open by it. */
  readonly #open = new Map<Call, { readonly session: SessionBook; readonly gauges: Numbers }>();
  readonly #nodes = new Map<Call, Parameters>();
  /** What relays have handed over, what of it arrived, and what was on its way when a connection broke. */
  readonly #handed: Numbers = new Map();
  readonly #arrived: Numbers = new Map();
  readonly #lost: Numbers = new Map();
  /** A relay ends as it should: what is left has to be sent now. */
  #draining: string | undefined;

  /** The seam of a relay above which its sums go up. */
  watch(relay: string, upstream: LoadUpstream): LoadUpstream {
    return { openLoadStream: (target, handler) => this.#session(relay, upstream, target, handler) };
  }

  #session(
    relay: string,
    upstream: LoadUpstream,
    { parameters, ...target }: LoadTarget,
    handler: LoadStreamHandler,
  ): LoadStream {
    const book = new SessionBook(relay);
    this.#sessions.set(keyOf(relay, parametersOf(parameters.entries)), book);
    const stream = upstream.openLoadStream(
      { ...target, parameters },
      {
        origin: () => handler.origin(),
        asked: (response) => {
          book.asked = readAsked(response);
          book.isUp = true;
          handler.asked(response);
        },
        down: () => {
          book.isUp = false;
          book.writing.clear();
          book.shown = new Map();
          handler.down();
        },
      },
    );
    return {
      report: (bytes, taken) => {
        const { counters, gauges } = readReport(bytes);
        book.writing.add(counters);
        const late = difference(atLeastZero(book.left), book.left);
        if (late !== undefined) throw new Violation(10, `${relay} reports more than it was told: ${late}`);
        stream.report(bytes, () => {
          book.writing.delete(counters);
          add(book.handed, counters);
          add(this.#handed, counters);
          for (const key of book.shown.keys()) if (!gauges.has(key)) book.shown.set(key, 0);
          for (const [key, value] of gauges) book.shown.set(key, value);
          taken();
        });
        // Nobody says that it was not written: then it is part of the next.
        if (!book.isUp) book.writing.delete(counters);
      },
      finish: () => {
        const left = difference(book.left, nothing);
        // A control plane that has never asked gets nothing, nor one that cannot be reached when the relay ends.
        const isExcused = book.asked === undefined || (this.#draining === relay && !book.isUp);
        if (left !== undefined && !isExcused)
          throw new Violation(10, `${relay} ends a session before it has handed over ${left}`);
        return stream.finish();
      },
    };
  }

  /** A report of a client, or of a relay below, was read by a relay: it may say more than the control plane asks for. */
  received(relay: string, call: Call, bytes: Uint8Array, native: boolean): void {
    const report = readReport(bytes);
    if (report.parameters !== undefined) this.#nodes.set(call, report.parameters);
    const parameters = native ? parametersOf(new Map()) : this.#nodes.get(call);
    const session = parameters && this.#sessions.get(keyOf(relay, parameters));
    if (session === undefined) return;
    const wanted = session.asked === undefined ? [] : session.asked.clusters;
    add(session.received, only(report.counters, wanted));
    this.#open.set(call, { session, gauges: only(report.gauges, wanted) });
  }

  /** A report of a relay was read. */
  arrived(bytes: Uint8Array): void {
    add(this.#arrived, readReport(bytes).counters);
  }

  /** One that was written was never read: its connection broke. */
  lost(bytes: Uint8Array): void {
    add(this.#lost, readReport(bytes).counters);
  }

  /** It ends: all that it has goes up. */
  drains(relay: string, drain: () => void): void {
    this.#draining = relay;
    drain();
    this.#draining = undefined;
  }

  /** It died: what it had is lost. */
  died(relay: string): void {
    for (const [key, book] of this.#sessions) if (book.relay === relay) this.#sessions.delete(key);
  }

  /** In quiet, while nobody requests anything. `isTaken`: control planes take reports. `movable`: relays with several endpoints. */
  settle(isTaken: boolean, movable: ReadonlySet<string>): void {
    for (const [call] of this.#open) {
      if (call.live) continue;
      this.#open.delete(call);
      this.#nodes.delete(call);
    }
    const onTheWay = new Map(this.#arrived);
    add(onTheWay, this.#lost);
    const gone = difference(this.#handed, onTheWay);
    if (gone !== undefined)
      throw new Violation(10, `handed over, and neither read nor lost on the way: ${gone}`);
    const using = new Set([...this.#open.values()].map(({ session }) => session));
    for (const [key, book] of this.#sessions) {
      if (isTaken && using.has(book) && !book.isUp)
        throw new Violation(10, `${key} is not asked for reports`);
      if (book.asked === undefined) {
        const some = difference(book.handed, nothing);
        if (some !== undefined) throw new Violation(10, `${key} reports ${some} to nobody`);
        continue;
      }
      // Another endpoint has asked, for itself, and the one where it is now does not.
      if (!isTaken && !book.isUp && movable.has(book.relay)) continue;
      const left = difference(book.received, book.handed);
      if (left !== undefined) throw new Violation(10, `${key} was told, and has handed over: ${left}`);
      this.#settleGauges(key, book);
    }
  }

  #settleGauges(key: string, book: SessionBook): void {
    if (!book.isUp) return;
    const living: Numbers = new Map();
    for (const { session, gauges } of this.#open.values()) if (session === book) add(living, gauges);
    const wrong = difference(living, book.shown);
    if (wrong !== undefined)
      throw new Violation(10, `${key}: clients have open, and the control plane knows: ${wrong}`);
  }
}

const keyOf = (relay: string, parameters: Parameters): string => `${relay} {${parameters.key}}`;

const atLeastZero = (numbers: Numbers): Numbers =>
  new Map([...numbers].map(([key, value]) => [key, Math.max(0, value)]));
