import { isDeepStrictEqual } from 'node:util';
import { serialize } from 'node:v8';
import type { Config } from '../config/config.ts';
import type { XdsStream } from '../downstream/xds-server.ts';
import type { TrafficJudge } from '../load-reports.ts';
import type { Side } from '../model/access.ts';
import type { Commit } from '../model/catalog.ts';
import { type Content, contentHash } from '../model/change.ts';
import { type Clock, Settling, Sweep, type Timer } from '../model/clock.ts';
import type { ReportedTraffic } from '../model/load.ts';
import { getOrMake } from '../model/maps.ts';
import type { SidedClient } from '../model/rollout.ts';
import { byPlace, classesMoved, isInWaves, type Member, type Moved } from '../releases/canaries.ts';
import { CommitAnswers } from '../releases/recorder.ts';
import { type CanaryStream, outdated, type Survey, type Waiting } from '../releases/waiting.ts';
import type { RelayFleet } from '../rollout-fleet.ts';
import type { Message, ToPrimary } from './ipc-messages.ts';

/** While a change waits the clients are looked at so often, in milliseconds: some may have come. */
const lookMs = 1000;
/** Answers of many canaries arrive together. */
const settling = { quiet: 10, longest: 100 };
/** Nodes that are canaries, of one worker: what the primary keeps over a restart is bounded, too. */
const maxCanaries = 10_000;

type CanaryFleet = Pick<RelayFleet, 'waitingChanged' | 'survey' | 'canary' | 'over'>;

/** Tells the primary what this worker's canaries say to the changes that wait. */
export class CanaryReporter {
  readonly #fleet: CanaryFleet;
  readonly #clock: Clock;
  readonly #send: (message: ToPrimary) => void;
  readonly #settling: Settling;
  #waiting: Waiting = new Map();
  /** Of the primary's question: it knows by it which change an answer is about. */
  #round = 0;
  #told = Buffer.alloc(0);
  /** Since the last report. */
  #ends: CanaryStream[] = [];
  /** Streams that have rejected something, by id, as long as they are canaries: a freeze may be over before they leave. */
  #rejected: ReadonlySet<string> = new Set();
  #timer: Timer | undefined;

  constructor(fleet: CanaryFleet, clock: Clock, send: (message: ToPrimary) => void) {
    this.#fleet = fleet;
    this.#clock = clock;
    this.#send = send;
    this.#settling = new Settling(clock, settling, () => this.#report());
  }

  /** The primary's question: answered at once, and again whenever the answer is another. */
  ask({ round, waiting }: Message<'waiting'>): void {
    this.#round = round;
    this.#waiting = waiting;
    this.#told = Buffer.alloc(0);
    this.#fleet.waitingChanged();
    // What ended rejected the change before, perhaps.
    this.#ends = this.#ends.map(outdated);
    if (waiting.size === 0) {
      this.#ends = [];
      this.#fleet.over();
    }
    this.#report();
  }

  /** As the primary asked last. */
  get waiting(): Waiting {
    return this.#waiting;
  }

  answered(): void {
    if (this.#waiting.size > 0) this.#settling.touch();
  }

  ended(stream: XdsStream): void {
    if (this.#waiting.size === 0) return;
    const canary = this.#fleet.canary(stream, this.#waiting);
    if (canary === undefined) return;
    this.#ends.push(canary);
    this.#settling.touch();
  }

  #report(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#waiting.size === 0) return;
    this.#timer = this.#clock.after(lookMs, () => this.#report());
    const survey = this.#fleet.survey(this.#waiting);
    // It calls when all streams have been looked at.
    if (!survey.complete) return;
    // The primary forgets what is not listed.
    const rejecting = survey.canaries.filter(
      ({ stream, standing }) => standing.kind === 'rejected' || this.#rejected.has(stream),
    );
    this.#rejected = new Set(rejecting.map(({ stream }) => stream));
    const report = reportOf(survey, this.#round, this.#ends, this.#rejected);
    const bytes = serialize(report);
    if (!bytes.equals(this.#told) || report.ended.length > 0) this.#send(report);
    this.#told = bytes;
    this.#ends = [];
  }
}

/**
 * What a worker says of its clients, as far as the judge needs it: all canaries, and of the other nodes with equal
 * subscriptions in one class the first by the hash. No other of them is ever elected.
 */
export function reportOf(
  { members, canaries }: Survey,
  round: number,
  ended: readonly CanaryStream[],
  rejected: ReadonlySet<string>,
): Message<'canary_report'> {
  const numbers = new Map<ReadonlySet<string>, number>();
  const numberOf = (names: ReadonlySet<string>): number => getOrMake(numbers, names, () => numbers.size);
  const chosen: Member[] = [];
  const candidates = new Map<string, Member>();
  for (const member of members) {
    if (member.side === 'canary') {
      if (chosen.length < maxCanaries) chosen.push(member);
      continue;
    }
    const subscribed = Array.from(member.subscribed, numberOf).toSorted((a, b) => a - b);
    const key = JSON.stringify([member.classKey, member.mayBeCanary, subscribed]);
    const known = candidates.get(key);
    if (known === undefined || byPlace(member, known) < 0) candidates.set(key, member);
  }
  // Of those that reject nothing the equal ones are one object, so that the message has it once.
  const equal = new Map<string, CanaryStream>();
  const listed = canaries.map((one) => {
    if (rejected.has(one.stream)) return one;
    const { node, classKey, standing, names } = one;
    const key = JSON.stringify([node, classKey, standing, names.map(numberOf)]);
    return getOrMake(equal, key, () => ({ ...one, stream: '' }));
  });
  return {
    kind: 'canary_report',
    round,
    members: [...chosen, ...candidates.values()],
    canaries: listed,
    ended,
  };
}

type CanaryRules = Message<'canaries'>;

/** As the primary said last. */
export function sideBy({ named, open, waves, reached }: CanaryRules, client: SidedClient): Side {
  if (named.has(client.nodeKey)) return 'canary';
  if (open?.has(client.classKey) === false) return 'released';
  return isInWaves(waves, reached.get(client.classKey), client) ? 'canary' : 'released';
}

/** Which clients may be on another side than before; undefined: all may be. */
export function movedBetween(
  before: CanaryRules,
  now: CanaryRules,
): ((client: Moved) => boolean) | undefined {
  if (!isDeepStrictEqual(before.waves, now.waves)) return undefined;
  const named = before.named.symmetricDifference(now.named);
  const reaches = classesMoved(before.reached, now.reached);
  return (client) =>
    named.has(client.nodeKey) ||
    reaches?.(client) === true ||
    (before.open?.has(client.classKey) === false && now.open?.has(client.classKey) !== false);
}

/** Tells the primary, which keeps the history, what the clients of this worker say to changes. */
export class AnswerReporter extends CommitAnswers<
  Pick<Message<'answers'>, 'type' | 'name' | 'content' | 'gone'>
> {
  constructor(clock: Clock, send: (message: ToPrimary) => void) {
    super(clock, (change, said) => send({ kind: 'answers', ...change, ...said }));
  }

  /** What canaries say the judge hears. */
  committed({ type, receivedAt, contents, sides }: Commit): void {
    const isForCanaries = sides !== undefined && sides.released.changed.size === 0;
    const change = contents === undefined || isForCanaries ? undefined : changeOf(contents);
    if (change !== undefined) this.sent(receivedAt, () => ({ type, ...change }));
  }
}

/** One name that shows which change this is. */
function changeOf(contents: NonNullable<Commit['contents']>) {
  for (const [name, { before, after }] of contents) {
    const [was, is] = [hashesOf(before.said), hashesOf(after.said)];
    const [fresh] = is.difference(was);
    if (fresh !== undefined) return { name, content: fresh, gone: false };
    const [left] = was.difference(is);
    if (left !== undefined) return { name, content: left, gone: true };
  }
  return undefined;
}

const hashesOf = (content: Content): ReadonlySet<string> =>
  new Set(content.map(({ variant }) => contentHash(variant)));

/** Reports of many clients come together, in milliseconds. */
const tellTrafficMs = 200;

/** Tells the primary, which judges changes, what the clients of this worker report of their traffic. */
export class TrafficReporter implements TrafficJudge {
  intervalMs: number | undefined;
  readonly #soon: Sweep;
  readonly #send: (message: ToPrimary) => void;
  #reports: ReportedTraffic[] = [];
  #left: string[] = [];

  constructor(config: Config, clock: Clock, send: (message: ToPrimary) => void) {
    this.reload(config);
    this.#soon = new Sweep(clock, tellTrafficMs, () => this.tell());
    this.#send = send;
  }

  reload({ rollout }: Config): void {
    this.intervalMs = rollout?.traffic?.intervalMs;
  }

  add(report: ReportedTraffic): void {
    this.#soon.start();
    this.#reports.push(report);
  }

  left(stream: string): void {
    if (this.intervalMs === undefined) return;
    this.#soon.start();
    this.#left.push(stream);
  }

  /** Before the primary hears what came later. */
  tell(): void {
    if (this.#reports.length + this.#left.length === 0) return;
    this.#send({ kind: 'traffic', reports: this.#reports, left: this.#left });
    this.#reports = [];
    this.#left = [];
  }
}
