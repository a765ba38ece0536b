import type { RelayFleet } from '../assembly/rollout-fleet.ts';
import type { XdsStream } from '../downstream/xds-server.ts';
import { resourceName, typeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import type { SidedClient } from '../model/rollout.ts';
import { Settling } from '../model/settling.ts';
import type { Side } from '../model/side.ts';
import { isCanaryByRule } from '../rollout/canaries.ts';
import { type CanaryStream, type Moved, outdated, type Waiting } from '../rollout/waiting.ts';
import { reportOf } from './canary-report.ts';
import type { CanariesMessage, ToPrimary, WaitingMessage } from './ipc-messages.ts';

/** While a change waits the clients are looked at so often, in milliseconds: some may have come. */
const lookMs = 1000;
/** Answers of many canaries arrive together. */
const settling = { quiet: 10, longest: 100 };

export interface CanaryReporterOptions {
  readonly fleet: RelayFleet;
  readonly clock: Clock;
  readonly send: (message: ToPrimary) => void;
}

/** Tells the primary what this worker's canaries say to the changes that wait. */
export class CanaryReporter {
  readonly #options: CanaryReporterOptions;
  readonly #settling: Settling;
  #waiting: Waiting = new Map();
  /** Of the primary's question: it knows by it which change an answer is about. */
  #round = 0;
  #told = '';
  /** Since the last report. */
  #ends: readonly CanaryStream[] = [];
  /** Streams that have rejected something of what waits, by id. */
  readonly #rejected = new Set<string>();
  #timer: Timer | undefined;

  constructor(options: CanaryReporterOptions) {
    this.#options = options;
    this.#settling = new Settling(options.clock, settling, () => this.#report());
  }

  /** The primary's question: answered at once, and again whenever the answer is another. */
  ask({ round, waiting }: WaitingMessage): void {
    this.#round = round;
    this.#waiting = new Map(
      waiting.map(({ type, names }) => [typeUrl(type), new Set(names.map(resourceName))]),
    );
    this.#told = '';
    this.#options.fleet.waitingChanged();
    // What ended rejected the change before, perhaps.
    this.#ends = this.#ends.map(outdated);
    if (waiting.length === 0) {
      this.#ends = [];
      this.#rejected.clear();
      this.#options.fleet.over();
    }
    this.#report();
  }

  answered(): void {
    if (this.#waiting.size > 0) this.#settling.touch();
  }

  ended(stream: XdsStream): void {
    if (this.#waiting.size === 0) return;
    const canary = this.#options.fleet.canary(stream, this.#waiting);
    if (canary === undefined) return;
    this.#ends = [...this.#ends, canary];
    this.#settling.touch();
  }

  #report(): void {
    const { fleet, clock, send } = this.#options;
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#waiting.size === 0) return;
    this.#timer = clock.after(lookMs, () => this.#report());
    const survey = fleet.survey(this.#waiting);
    // It calls when all streams have been looked at.
    if (!survey.complete) return;
    for (const { stream, standing } of survey.canaries)
      if (standing.kind === 'rejected') this.#rejected.add(stream);
    const report = reportOf(survey, { round: this.#round, ends: this.#ends, rejected: this.#rejected });
    const text = JSON.stringify(report);
    if (text !== this.#told || report.ended.length > 0) send(report);
    this.#told = text;
    this.#ends = [];
  }
}

/** Which nodes are canaries, as the primary said last. */
export class CanaryNodes {
  #rules: CanariesMessage['rules'];
  #named: ReadonlySet<string>;
  /** The classes for which the rules make canaries; undefined: all. */
  #open: ReadonlySet<string> | undefined;

  constructor({ rules, nodes, open }: CanariesMessage) {
    this.#rules = rules;
    this.#open = open && new Set(open);
    this.#named = new Set(nodes);
  }

  get rules(): CanariesMessage['rules'] {
    return this.#rules;
  }

  sideOf(client: SidedClient): Side {
    if (this.#named.has(client.nodeId)) return 'canary';
    const isOpen = this.#open?.has(client.classKey) !== false;
    return isOpen && isCanaryByRule(this.#rules, client) ? 'canary' : 'released';
  }

  /** Returns which clients may be on another side now; undefined: all may be. */
  update({ rules, nodes, open }: CanariesMessage): ((client: Moved) => boolean) | undefined {
    const sameRules = JSON.stringify(rules) === JSON.stringify(this.#rules);
    const named = this.#named.symmetricDifference(new Set(nodes));
    const before = this.#open;
    const now = open && new Set(open);
    this.#rules = rules;
    this.#named = new Set(nodes);
    this.#open = now;
    if (!sameRules) return undefined;
    return ({ nodeId, classKey }) =>
      named.has(nodeId) || (before?.has(classKey) === false && now?.has(classKey) !== false);
  }
}
