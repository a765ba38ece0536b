import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import type { XdsStream } from '../../src/downstream/xds-server.ts';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName, type TypeUrl, typeUrl } from '../../src/model/brand.ts';
import type { Commit } from '../../src/model/catalog.ts';
import type { Clock } from '../../src/model/clock.ts';
import type { TypedName } from '../../src/model/holds.ts';
import { placeOf } from '../../src/model/node-path.ts';
import type { Variant } from '../../src/model/resource.ts';
import type { CohortClient, checkStates } from '../../src/model/rollout.ts';
import type { Relay } from '../../src/relay.ts';
import { Checks } from '../../src/releases/checks.ts';
import type { RolloutSettings } from '../../src/releases/judge.ts';
import { Rollout } from '../../src/releases/rollout.ts';
import { nothingSaved, type SavedRollout } from '../../src/releases/rollout-file.ts';
import type { RolloutEvents } from '../../src/releases/seams.ts';
import { Traffic } from '../../src/releases/traffic.ts';
import { RelayFleet } from '../../src/rollout-fleet.ts';
import { contentOf } from '../support/in-memory-relay.ts';
import { matchesHex, type Parameters } from './constraints.ts';
import type { Received, ReceivedResource } from './messages.ts';
import type { Tally } from './tally.ts';
import { type Note, Violation } from './violation.ts';
import { catalog, isBad, isHarmful, type Kind, kindOf, type World } from './world.ts';

/** `rollout` of a relay. */
export interface RolloutPlan {
  readonly waves: readonly {
    readonly percent: number;
    readonly match: readonly { readonly key: 'env' | 'version'; readonly value: string }[];
    /** Left out: that of the rollout. */
    readonly bakeMs?: number;
  }[];
  readonly bakeMs: number;
  readonly maxWaitMs: number;
  readonly onTimeout: 'HOLD' | 'PROCEED';
  readonly onFailure: 'HOLD' | 'DISCARD';
  readonly mode: 'AUTOMATIC' | 'MANUAL';
  readonly maxDisconnects: number;
  readonly checks: boolean;
  readonly traffic: boolean;
}

export type CheckSays = (typeof checkStates)[number];

/** What an operator does to a rollout; the last one sends SIGHUP. */
export type Operation = 'release' | 'discard' | 'freeze' | 'unfreeze' | 'promote' | 'reload';

/** The types whose changes wait. */
const gated: readonly Kind[] = ['cds', 'lds', 'rds', 'sds'];
const decision = { operator: 'somebody', reason: 'the schedule says so' };
const checkMs = 700;
const answerMs = 40;
/** After so long a rollout has heard of who has come. */
const heardMs = 150;
/** How long a client's answer may take, and what it reports because of it. */
const settleMs = 500;
const trafficMs = 1000;

const idOf = (kind: Kind, name: string): string => `${kind} ${name}`;

/** A client has been sent something. With another class it is another client. */
interface Sent {
  readonly classKey: string;
  readonly at: number;
}

/** What a relay's rollout has done in all its incarnations, as the rules have seen it. */
export class RolloutHistory {
  readonly plan: RolloutPlan;
  saved: SavedRollout | undefined;
  /** What checks say from now on. */
  says: CheckSays = 'GOOD';
  /** Grows with everything that it does: what is told may be taken back, and told again. */
  turn = 0;
  /** How often clients may have gone back to what was before. */
  goings = 0;
  /** By kind and name: what everybody could have, at any time. */
  readonly released = new Map<string, Set<string>>();
  /** By kind and name: what canaries could see so far. */
  readonly shown = new Map<string, Set<string>>();
  /** By kind and name: the clients that have been sent what waits. */
  readonly sent = new Map<string, Map<string, Sent>>();
  /** By kind and name: the nodes that have been sent anything of it. */
  readonly told = new Map<string, Set<string>>();
  /** By kind and name: what was discarded, and upstream's revision then. */
  readonly discarded = new Map<
    string,
    { readonly contents: ReadonlySet<string>; readonly revision: number }
  >();
  /** By kind, name and content: what a client rejects, since upstream said it. */
  readonly rejected = new Set<string>();
  /** When checks answered, and what. */
  readonly answers: { readonly at: number; readonly says: CheckSays }[] = [];
  /** By kind, name and content: the clients that have been sent what makes their requests fail. */
  readonly harmed = new Map<string, Map<string, Sent>>();
  /** When the clients of a stream have reported, whether requests failed, and whether it had nothing that waited. */
  reports: {
    readonly node: string;
    readonly classKey: string;
    readonly at: number;
    readonly stream: string;
    readonly fails: boolean;
    readonly isUsual: boolean;
  }[] = [];
  /** When a client reported no requests. */
  silentAt = Number.NEGATIVE_INFINITY;
  /** When something joined what waits. */
  joinedAt = 0;
  /** A check was bad before the relay died, and what it found is saved. */
  wasBad = false;

  constructor(plan: RolloutPlan, keeps: boolean) {
    this.plan = plan;
    this.saved = keeps ? nothingSaved : undefined;
  }

  get saidBad(): boolean {
    return (
      this.wasBad ||
      this.answers.some(({ says }, at) => says === 'BAD' && this.answers[at - 1]?.says === 'BAD')
    );
  }

  /** The relay died. */
  died(): void {
    this.wasBad = this.saved !== undefined && this.saidBad;
    this.answers.length = 0;
    this.reports = [];
    if (this.saved !== undefined) return;
    this.discarded.clear();
    this.rejected.clear();
  }
}

/** A change has passed a wave, which was not its last one. */
interface Passed {
  /** The one after it. */
  readonly wave: number;
  readonly at: number;
  /** It passed for want of time, or because of an operator. */
  readonly isExcused: boolean;
  /** Somebody has got it since who did not have it, or there is more of it. */
  readonly isMet: boolean;
}

export interface SimulatedRolloutOptions {
  readonly id: string;
  readonly clock: Clock;
  readonly relay: Relay;
  readonly history: RolloutHistory;
  readonly world: World;
  /** What is above tells everything at once, and once. */
  readonly isPlain: boolean;
  /** Which of several variants is meant nobody can say: what was discarded may seem to be taken back, and said anew. */
  readonly isUndecided: (kind: Kind, name: string) => boolean;
  readonly tally: Tally;
  readonly note: Note;
}

/** The rollout of one incarnation of a relay, all of it real, and rules 8 and 9 about it. */
export class SimulatedRollout {
  readonly rollout: Rollout;
  readonly traffic: Traffic;
  readonly #fleet: RelayFleet;
  readonly #options: SimulatedRolloutOptions;
  readonly #checks: Checks;
  readonly #forget: () => void;
  /** It is an operator who does what happens now. */
  #operated = false;
  #timedOutAt: number | undefined;
  /** Then they had yet to answer. */
  #unanswered: ReadonlySet<string> = new Set();
  /** By node, as it was known last. */
  readonly #classes = new Map<string, string>();
  /** By node. */
  readonly #canarySince = new Map<string, number>();
  /** By kind and name: when the wave of a change began. */
  readonly #passed = new Map<string, Passed>();
  /** By kind and name: the wave in which it was held last. */
  readonly #heldIn = new Map<string, number>();

  constructor(options: SimulatedRolloutOptions) {
    this.#options = options;
    const { clock, relay, history, tally, note, id } = options;
    const settings = settingsOf(history.plan);
    const isMoving = (): boolean => this.#fleet.isMoving;
    this.#fleet = new RelayFleet(relay, clock, () => this.rollout.answered());
    this.#checks = new Checks(history.plan.checks ? [check] : [], {
      clock,
      subject: () => undefined,
      changed: () => this.rollout.answered(),
      ask: (_, answered) => {
        const { says } = history;
        clock.after(answerMs, () => {
          tally.count(`check says ${says}`);
          history.answers.push({ at: clock.now(), says });
          answered({ state: says, value: undefined, reason: 'the schedule says so' });
        });
      },
    });
    this.traffic = new Traffic(settings, clock);
    const events: RolloutEvents = {
      counted: (result) => {
        tally.count(`rollout ${result}`);
        if (result === 'timeout') this.#timesOut();
      },
      canariesSaid: () => undefined,
      released: (names) => this.#released(names),
      stateChanged: () => this.#turned(),
      decided: () => undefined,
      changeIs: (state, names, { wave }) => {
        this.#turned();
        if (wave > 1) tally.count(`a change in wave ${wave}`);
        for (const one of names)
          if (state.kind === 'CANARY') this.#begins(wave, one);
          else this.#heldIn.set(idOf(kindOf(one.type), one.name), wave);
        note(
          () =>
            `${id}: ${state.kind} in wave ${wave}: ${names.map((one) => one.name).join(' ')} ${state.reason}`,
        );
      },
      resolved: () => undefined,
      discarded: (names, cause, reason) => this.#discarded(names, cause ?? reason),
      save: (state) => {
        if (history.saved !== undefined) history.saved = state;
      },
    };
    this.rollout = new Rollout(settings, {
      checks: this.#checks,
      traffic: this.traffic,
      gate: relay.gate,
      fleet: {
        survey: (waiting) => this.#fleet.survey(waiting),
        waitingChanged: () => this.#fleet.waitingChanged(),
        moved: (isMoved) => {
          this.#turned();
          history.goings++;
          this.#fleet.moved(isMoved);
        },
        get isMoving() {
          return isMoving();
        },
      },
      clock,
      events,
      removalLimits: () => [],
      saved: history.saved,
    });
    this.#forget = relay.gate.onChanged(({ type, joined, left }) => {
      if (joined.length > 0) history.joinedAt = clock.now();
      for (const name of left) history.sent.delete(idOf(kindOf(type), name));
      for (const name of joined) this.#joins(kindOf(type), name);
      for (const name of [...joined, ...left])
        for (const key of history.rejected)
          if (key.startsWith(`${idOf(kindOf(type), name)} `)) history.rejected.delete(key);
    });
  }

  cohortOf(client: CohortClient): Cohort {
    const { nodeKey, classKey } = client;
    this.#classes.set(nodeKey, classKey);
    const cohort = this.rollout.canaries.cohortOf(client);
    if (cohort === 'released') this.#canarySince.delete(nodeKey);
    else if (!this.#canarySince.has(nodeKey)) this.#canarySince.set(nodeKey, this.#options.clock.now());
    return cohort;
  }

  touched(stream: string, isOfCanary: boolean): void {
    this.#fleet.touched(stream);
    if (isOfCanary) this.rollout.answered();
  }

  changing(stream: XdsStream): void {
    this.#fleet.changing(stream, this.rollout.waiting());
  }

  closed(stream: XdsStream): void {
    if (stream.client?.access.cohort === 'canary') {
      const waiting = this.rollout.waiting();
      const canary = waiting.size === 0 ? undefined : this.#fleet.canary(stream, waiting);
      if (canary !== undefined) this.rollout.canaryEnded(canary);
    }
    this.#fleet.touched(stream.id);
  }

  stop(): void {
    this.rollout.stop();
    this.#fleet.stop();
    this.#forget();
  }

  /** The cache has taken something. Rule 8: no change is shown while another is in a later wave. */
  published(commit: Commit): void {
    this.#fleet.committed(commit);
    const kind = kindOf(commit.type);
    if (!gated.includes(kind)) return;
    const { history, tally } = this.#options;
    const { released: all = commit, canary: some = commit } = commit.cohorts ?? {};
    // Who has just come may be let into what waits, though upstream says nothing new.
    const names = new Set([commit, all, some].flatMap(({ changed }) => [...changed.keys()]));
    for (const name of names) {
      const id = idOf(kind, name);
      const released = this.#contents(commit.type, name, 'released');
      const known = setAt(history.released, id);
      const isNew = known.size === 0;
      for (const content of released) known.add(content);
      const pending = this.#contents(commit.type, name, 'canary');
      for (const content of pending) {
        const shown = setAt(history.shown, id);
        if (shown.has(content)) continue;
        shown.add(content);
        if (!known.has(content) && this.#mustWait(commit.type, name, content))
          this.#shows(kind, name, content);
      }
      if (!isNew) continue;
      tally.count('name never seen before at a rollout');
      if (pending.size > 0 && released.size === 0 && this.rollout.report().freezes.length === 0)
        throw new Violation(8, `${id}, never seen before, waits at ${this.#options.id}`);
    }
  }

  /** Behind constraints that are new it may be for clients with parameters that nobody had: these have nothing of it. */
  #mustWait(type: TypeUrl, name: string, content: string): boolean {
    const { gate } = this.#options.relay;
    const keysOf = (cohort: Cohort, wanted?: string): readonly string[] =>
      gate
        .contentOf(type, resourceName(name), cohort)
        .filter(({ variant }) => wanted === undefined || contentIn(variant.payload) === wanted)
        .map(({ variant }) => variant.constraints.key);
    const known = keysOf('released');
    return keysOf('canary', content).some((key) => known.includes(key));
  }

  #shows(kind: Kind, name: string, content: string): void {
    const later = this.rollout
      .report()
      .changes.filter(({ isPastFirst, names }) => isPastFirst && names.some((one) => this.#isMet(one)));
    if (later.length === 0) return;
    const own = this.#changeOf(kind, name);
    // What mends it may come in parts.
    const wasHeld = ({ type, name: one }: TypedName): boolean =>
      (this.#heldIn.get(idOf(kindOf(type), one)) ?? 0) >= (own?.wave ?? 1);
    if (own !== undefined && (!own.isPastFirst || own.names.some(wasHeld))) return;
    this.#options.tally.count('shown beside a later wave');
    throw new Violation(
      8,
      `${kind} ${name} ${content} is shown at ${this.#options.id}, though another change is in a later wave`,
    );
  }

  /** Who was sent what waits under this name is there, and is who it was. */
  #isMet({ type, name }: TypedName): boolean {
    const { relay, history, clock } = this.#options;
    const known = history.sent.get(idOf(kindOf(type), name));
    if (known === undefined) return false;
    return Iterator.from(relay.server.values()).some(({ client }) => {
      const before = client && known.get(client.nodeId);
      // Of what has just come the rollout has not heard yet.
      return before?.classKey === client?.classKey && (before?.at ?? clock.now()) < clock.now() - heardMs;
    });
  }

  /** A client is written what it was not sent before. Rules 8 and 9. */
  written(nodeId: string, parameters: Parameters, kind: Kind, { name, content }: ReceivedResource): void {
    if (!gated.includes(kind)) return;
    const { history, id, world, isPlain, isUndecided, tally, clock } = this.#options;
    const key = idOf(kind, name);
    setAt(history.told, key).add(nodeId);
    const classKey = this.#classOf(nodeId);
    const harmed = history.harmed.get(`${key} ${content}`) ?? new Map<string, Sent>();
    const isReleased =
      history.released.get(key)?.has(content) === true ||
      this.#contents(typeUrl(catalog[kind].url), name, 'released').has(content);
    // Whom it is taken back from, and who gets it again, has it from now on, though others have had it meanwhile.
    if (isHarmful(content) && (!isReleased || harmed.has(nodeId)))
      history.harmed.set(`${key} ${content}`, harmed.set(nodeId, { classKey, at: clock.now() }));
    if (isReleased) return;
    tally.count('sent to a canary of a rollout');
    const sent = history.sent.get(key) ?? new Map<string, Sent>();
    if (!sent.has(nodeId)) {
      sent.set(nodeId, { classKey, at: clock.now() });
      this.#meets(key, this.#canarySince.get(nodeId));
    }
    history.sent.set(key, sent);
    const gone = history.discarded.get(key);
    const isGone = gone?.contents.has(content) === true && world.lastEdit(kind, [name]) <= gone.revision;
    if (isPlain && isGone && !isUndecided(kind, name))
      throw new Violation(9, `${nodeId} is sent ${kind} ${name} ${content}, which ${id} has discarded`);
    const own = this.#changeOf(kind, name);
    // Where earlier waves met nobody of the class, what comes joins the one that it has come to.
    const reached = own?.isPastFirst === true ? 0 : (this.rollout.canaries.reached.get(classKey) ?? 0);
    const wave = Math.max(own?.wave ?? 1, reached);
    if (this.#isIn(nodeId, parameters, wave)) return;
    const { named } = this.rollout.canaries;
    if (named.has(nodeId)) {
      tally.count('sent to an elected canary');
      return;
    }
    throw new Violation(
      8,
      `${nodeId} is sent ${kind} ${name} ${content}, which is in wave ${wave} of ${id}, and not for it`,
    );
  }

  /** A client rejects all of this, and has said so. */
  rejected({ kind, resources }: Received): void {
    if (!gated.includes(kind)) return;
    const [first, ...others] = resources;
    // Of several any may be the bad one.
    if (first === undefined || others.length > 0 || !isBad(first.content)) return;
    const pending = this.#contents(typeUrl(catalog[kind].url), first.name, 'canary');
    if (pending.has(first.content))
      this.#options.history.rejected.add(`${idOf(kind, first.name)} ${first.content}`);
  }

  operate(does: Operation): void {
    const { history, tally, note, id } = this.#options;
    this.#turned();
    this.#operated = true;
    const { rollout } = this;
    if (does === 'release') tellIf(rollout.release({}, decision.reason));
    else if (does === 'promote') tellIf(rollout.promote({}, decision.reason));
    else if (does === 'discard') tellIf(rollout.discard({}, decision.reason));
    else if (does === 'freeze') tellIf(rollout.freeze({}, decision));
    else if (does === 'unfreeze') tellIf(rollout.unfreeze({}));
    else this.#reload(settingsOf(history.plan));
    this.#operated = false;

    function tellIf(result: { readonly ok: boolean }): void {
      if (result.ok) tally.count(`operator: ${does}`);
      else note(() => `${id}: ${does} is refused: ${JSON.stringify(result)}`);
    }
  }

  /** As `rollout` may be taken out and put in again: everybody gets what upstream says. */
  open(takeDiscarded: () => void): void {
    this.#operated = true;
    this.#turned();
    this.#options.history.goings++;
    this.rollout.unfreeze({});
    this.rollout.release({}, decision.reason);
    this.#reload(undefined);
    takeDiscarded();
    this.#options.history.discarded.clear();
    this.#options.history.rejected.clear();
    this.#options.history.harmed.clear();
    // What was usual is forgotten, too.
    this.#options.history.reports = [];
    this.#operated = false;
  }

  close(): void {
    this.#reload(settingsOf(this.#options.history.plan));
  }

  #reload(settings: RolloutSettings | undefined): void {
    this.traffic.reload(settings);
    this.rollout.reload(settings);
    this.#options.relay.server.reidentify();
  }

  /**
   * Rules 8 and 9 in quiet, after the time that all waves take: what still waits is held for a reason that there was.
   * With MANUAL the operator has promoted what could be.
   */
  settle(caused: ReadonlySet<string>): void {
    const { id, tally, history } = this.#options;
    const { changes, freezes, canaries } = this.rollout.report();
    if (freezes.length > 0) return;
    for (const { state, names, wave } of changes) {
      const which = names.map(({ type, name }) => idOf(kindOf(type), name)).join(', ');
      if (state.kind !== 'HELD')
        throw new Violation(8, `${which} still waits in wave ${wave} of ${id}: ${state.reason}`);
      tally.count(`held in quiet: ${state.cause}`);
      const isDue = {
        // What is bad may be something that everybody got at once, in the same response.
        rejected: caused.has('reject') || history.shown.values().some((all) => all.values().some(isBad)),
        traffic:
          history.silentAt > history.joinedAt ||
          history.shown.values().some((all) => all.values().some(isHarmful)),
        check: history.saidBad,
        disconnects: caused.has('disconnect'),
        // It may wait for a name that its control plane never answers.
        timeout: canaries.accepted < canaries.total,
        removals: false,
        content: false,
      }[state.cause];
      if (!isDue) throw new Violation(9, `${which} is held at ${id} without cause: ${state.reason}`);
      if (history.plan.onFailure === 'DISCARD' && state.cause !== 'timeout')
        throw new Violation(9, `${which} is held at ${id}, though on_failure is DISCARD: ${state.reason}`);
    }
  }

  /**
   * Rule 9: after a discard nobody has it. `holds`: who has this, though it could hear better. A client may have got it
   * with other parameters than it has now: for these there may be nothing of the name.
   */
  checkDiscarded(
    caused: ReadonlySet<string>,
    holds: (
      kind: Kind,
      name: string,
      content: string,
      isThere: (form: Parameters) => boolean,
    ) => string | undefined,
  ): void {
    const { history, world, isPlain, isUndecided, id, tally } = this.#options;
    // A client that rejects what was before keeps what it has.
    if (!isPlain || caused.has('reject') || history.released.values().some((all) => all.values().some(isBad)))
      return;
    for (const [key, { contents, revision }] of history.discarded) {
      const [kind, name] = key.split(' ');
      const own = gated.find((one) => one === kind);
      if (own === undefined || name === undefined || world.lastEdit(own, [name]) > revision) continue;
      if (isUndecided(own, name)) continue;
      for (const content of contents) {
        if (history.released.get(key)?.has(content) === true) continue;
        tally.count('discarded, and looked for in quiet');
        const who = holds(own, name, content, (form) => this.isThere(own, name, form));
        if (who !== undefined)
          throw new Violation(9, `${who} still has ${key} ${content}, which ${id} has discarded`);
      }
    }
  }

  /** Whether upstream has something of a name for these parameters, or everybody with them does. */
  isThere(kind: Kind, name: string, form: Parameters): boolean {
    const { relay, world } = this.#options;
    if (world.matching(kind, name, form, world.revision).length > 0) return true;
    const released = relay.gate.contentOf(typeUrl(catalog[kind].url), resourceName(name), 'released');
    return released.some(({ variant }) =>
      matchesHex(Buffer.from(variant.constraints.bytes).toString('hex'), form),
    );
  }

  #classOf(node: string): string {
    return this.#classes.get(node) ?? '';
  }

  #turned(): void {
    this.#options.history.turn++;
  }

  #cohortNow(node: string): Cohort | undefined {
    const streams = Iterator.from(this.#options.relay.server.values());
    return streams.find(({ client }) => client?.nodeId === node)?.client?.access.cohort;
  }

  #changeOf(kind: Kind, name: string) {
    const url = catalog[kind].url;
    return this.rollout
      .report()
      .changes.find(({ names }) => names.some((one) => one.type === url && one.name === name));
  }

  /** By its own reading of the waves. */
  #isIn(nodeId: string, { entries }: Parameters, wave: number): boolean {
    return this.#options.history.plan.waves
      .slice(0, wave)
      .some(
        ({ percent, match }) =>
          match.some(({ key, value }) => entries.some(([own, its]) => own === key && its === value)) ||
          placeOf(nodeId) * 100 < percent,
      );
  }

  #contents(type: TypeUrl, name: string, cohort: Cohort): Set<string> {
    const { relay } = this.#options;
    const names = relay.gate.contentOf(type, resourceName(name), cohort);
    return new Set(names.flatMap(({ variant: { payload } }) => contentIn(payload) ?? []));
  }

  /** With their constraints. */
  #variants(type: TypeUrl, name: string, column: Cohort | 'said'): string {
    const all = this.#options.relay.gate.contentOf(type, resourceName(name), column);
    const lines = all.map(({ variant }) => `${variant.constraints.key} ${contentIn(variant.payload)}`);
    return lines.toSorted().join('\n');
  }

  /** What is new of a change that waits: nobody has judged that. */
  #joins(kind: Kind, name: string): void {
    const key = idOf(kind, name);
    if (this.#changeOf(kind, name) === undefined) this.#passed.delete(key);
    else this.#meets(key);
  }

  #begins(wave: number, { type, name }: TypedName): void {
    const key = idOf(kindOf(type), name);
    if (wave === 1) {
      this.#passed.delete(key);
      this.#heldIn.delete(key);
    } else if ((this.#passed.get(key)?.wave ?? 1) < wave) {
      const at = this.#options.clock.now();
      const isExcused = this.#operated || this.#timedOutAt === at;
      this.#passed.set(key, { wave, at, isExcused, isMet: false });
    }
  }

  /** `since`: when who gets it became a canary. One of an earlier wave may read it late. */
  #meets(key: string, since = Number.POSITIVE_INFINITY): void {
    const passed = this.#passed.get(key);
    if (passed !== undefined && since >= passed.at) this.#passed.set(key, { ...passed, isMet: true });
  }

  /** Everybody gets this now. */
  #released(names: readonly TypedName[]): void {
    this.#turned();
    const { history } = this.#options;
    if (!this.#operated) this.#wasGood(names);
    // If it comes again behind other constraints, it is nothing new.
    for (const { type, name } of names)
      for (const content of this.#contents(type, name, 'released'))
        history.harmed.delete(`${idOf(kindOf(type), name)} ${content}`);
  }

  #timesOut(): void {
    this.#timedOutAt = this.#options.clock.now();
    const waiting = this.rollout.waiting();
    const streams = [...this.#options.relay.server.values()];
    const canaries = streams.flatMap((stream) => this.#fleet.canary(stream, waiting) ?? []);
    this.#unanswered = new Set(
      canaries.flatMap(({ node, standing }) => (standing.kind === 'accepted' ? [] : node)),
    );
  }

  #wasGood(names: readonly TypedName[]): void {
    const { history, id, clock } = this.#options;
    for (const { type, name } of names) {
      const key = idOf(kindOf(type), name);
      for (const content of this.#contents(type, name, 'released'))
        if (history.rejected.has(`${key} ${content}`))
          throw new Violation(9, `${id} gives ${key} ${content} to everybody, which a client has rejected`);
        else if (isHarmful(content)) this.#wasNotHarmful(key, content);
    }
    const said = history.answers.filter(({ at }) => at > history.joinedAt);
    // A verdict needs two in a row in one wave.
    if (
      said.some((_, index) => said.slice(index, index + 3).filter(({ says }) => says === 'BAD').length === 3)
    )
      throw new Violation(9, `${id} gives a change to everybody, which a check has found bad`);
    if (this.#timedOutAt !== clock.now()) this.#checksWereGood(names);
  }

  /** A client has reported. */
  reported(node: string, stream: string, errors: number, requests: boolean): void {
    const { history, clock } = this.#options;
    if (!requests) history.silentAt = clock.now();
    history.reports = history.reports.slice(-500);
    const isUsual = !this.#hasHeld(node);
    const classKey = this.#classOf(node);
    history.reports.push({ node, classKey, stream, at: clock.now(), fails: errors > 0, isUsual });
  }

  /** It has, or is to have, what others have not: what is judged or frozen, whoever may have had the same before (ADR 161). */
  #hasHeld(node: string): boolean {
    const { history, relay, clock } = this.#options;
    // Of what has just come the rollout has not heard yet.
    if (this.#cohortNow(node) !== 'canary' || clock.now() < history.joinedAt + heardMs) return false;
    return relay.gate.pending.some(
      ({ type, name, seen }) => seen && history.told.get(idOf(kindOf(type), name))?.has(node) === true,
    );
  }

  /** Rule 9: clients that have it have not said so often enough that it fails, while others of their class, which are in no wave, said that it does not. */
  #wasNotHarmful(key: string, content: string): void {
    const { history, id, tally, clock } = this.#options;
    if (!history.plan.traffic) return;
    // Then it is nothing new that requests fail.
    const others = [...history.released].flatMap(([own, contents]) => (own === key ? [] : [...contents]));
    if (
      others.some(isHarmful) ||
      [...(history.released.get(key) ?? [])].some((one) => one !== content && isHarmful(one))
    )
      return;
    const harmed = history.harmed.get(`${key} ${content}`) ?? new Map<string, Sent>();
    const since = Math.max(history.joinedAt, ...harmed.values().map(({ at }) => at)) + settleMs;
    const saying = (fails: boolean): ReadonlySet<string> => {
      const own = history.reports.filter(({ at }) => at > since);
      const byStream = Map.groupBy(own, ({ stream }) => stream).values();
      const always = byStream.filter((all) => all.length >= 4 && all.every((one) => one.fails === fails));
      return new Set(always.flatMap(([first]) => (first === undefined ? [] : [first.node])));
    };
    const failing = [...saying(true)].filter((node) => harmed.get(node)?.classKey === this.#classOf(node));
    const isInWaves = (node: string): boolean => this.#cohortNow(node) === 'canary';
    const well = saying(false);
    const nodes = new Set(history.reports.map(({ node }) => node));
    // What is usual for a client is forgotten with its class, also if it has come back to that.
    const before = (node: string) => {
      const all = history.reports.filter((one) => one.node === node && one.at < (harmed.get(node)?.at ?? 0));
      return all.slice(all.findLastIndex(({ classKey }) => classKey !== this.#classOf(node)) + 1);
    };
    const saidLater = new Set(history.reports.flatMap(({ stream, at }) => (at > since ? stream : [])));
    const bad = failing.find((node) => {
      // A client counts once it has accepted the change, and some wait for a name that nobody answers.
      if (this.#timedOutAt === clock.now() && this.#unanswered.has(node)) return false;
      // A client that rejects what was before a discard keeps what fails: that is usual then. One report is of both.
      if (before(node).filter(({ fails, isUsual }) => fails && isUsual).length > 1) return false;
      const ofClass = [...nodes].filter((one) => this.#classOf(one) === this.#classOf(node));
      // If half a report failed before, for whatever reason, chance explains a few of them (ADR 161).
      if (
        ofClass.some((one) => history.reports.some((said) => said.node === one && said.fails && said.isUsual))
      )
        return false;
      const others = ofClass.filter((one) => !isInWaves(one));
      if (others.length > 0) return others.some((one) => well.has(one));
      // Who has the same as the first that is for their locators is judged with nobody, and may fail as well.
      if (ofClass.some((one) => !harmed.has(one) && !well.has(one))) return false;
      // Nobody of the class is left: they are compared with themselves. What is usual then is forgotten with their stream of
      // reports. While they have something that is judged or frozen, nothing that they report is usual (ADR 161).
      const usual = before(node).filter(({ stream, isUsual }) => isUsual && saidLater.has(stream));
      return usual.length >= 5 && usual.every(({ fails }) => !fails);
    });
    if (failing.length > 0) tally.count('failing canaries at a release');
    if (bad !== undefined)
      throw new Violation(
        9,
        `${id} gives ${key} ${content} to everybody, with which the requests of ${bad} fail`,
      );
  }

  /** Rule 9: for the bake before this, or before the end of the last wave that met somebody. */
  #checksWereGood(names: readonly TypedName[]): void {
    const { history, id, clock, tally } = this.#options;
    if (!history.plan.checks) return;
    const wrong = this.#wrongBefore(clock.now());
    if (wrong === undefined) {
      tally.count('released with good checks');
      return;
    }
    for (const { type, name } of names) {
      const passed = this.#passed.get(idOf(kindOf(type), name));
      const isPassed = passed?.isMet === false;
      if (!isPassed || (!passed.isExcused && this.#wrongBefore(passed.at) !== undefined))
        throw new Violation(9, `${id} gives a change to everybody, though a check says ${wrong}`);
    }
    tally.count('released after a wave that met nobody');
  }

  /** What a check said in a bake that is over then, but GOOD. */
  #wrongBefore(end: number): CheckSays | 'nothing' | undefined {
    const { plan, answers } = this.#options.history;
    const bakeMs = Math.min(plan.bakeMs, ...plan.waves.flatMap((wave) => wave.bakeMs ?? []));
    const from = end - bakeMs;
    const during = answers.filter(({ at }) => at > from && at <= end);
    const before = answers.findLast(({ at }) => at <= from + answerMs);
    const all = [...during, ...(before === undefined ? [] : [before])];
    return all.find(({ says }) => says !== 'GOOD')?.says ?? (before === undefined ? 'nothing' : undefined);
  }

  #discarded(names: readonly TypedName[], why: string): void {
    const { history, world, tally, note, id } = this.#options;
    this.#turned();
    history.goings++;
    tally.count(`discarded: ${why}`);
    note(() => `${id}: discarded: ${names.map((one) => one.name).join(' ')} ${why}`);
    for (const { type, name } of names) {
      const kind = kindOf(type);
      const said = world.at(kind, name, world.revision).map(({ content }) => content);
      const contents = this.#contents(type, name, 'canary');
      const [judged, next] = (['canary', 'said'] as const).map((column) =>
        this.#variants(type, name, column),
      );
      // Of an edit of which the relay has not heard all, what comes is something else, and so is what is queued.
      if (contents.isSubsetOf(new Set(said)) && judged === next)
        history.discarded.set(idOf(kind, name), { contents, revision: world.revision });
      else history.discarded.delete(idOf(kind, name));
    }
  }
}

const check = {
  name: 'schedule',
  intervalMs: checkMs,
  timeoutMs: 1000,
  failures: 2,
};

function settingsOf({ waves, traffic, ...plan }: RolloutPlan): RolloutSettings {
  return {
    ...plan,
    waves: waves.map(({ percent, match, bakeMs }, index) => ({
      path: `rollout.waves[${index}]`,
      percent,
      match,
      elects: percent > 0,
      bakeMs,
    })),
    canaryPrincipals: [],
    types: gated.map((kind) => typeUrl(catalog[kind].url)),
    guard: { maxEmptiedPercent: 100 },
    ...(traffic
      ? { traffic: { maxErrorIncrease: 5, maxRequestDrop: 90, minRequests: 50, intervalMs: trafficMs } }
      : {}),
  };
}

const contentIn = (payload: Variant['payload']): string | undefined =>
  payload && contentOf(fromBinary(AnySchema, payload.bytes));

function setAt(map: Map<string, Set<string>>, key: string): Set<string> {
  const known = map.get(key) ?? new Set();
  map.set(key, known);
  return known;
}
