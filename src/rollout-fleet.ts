import { isShownAlike } from './cache/cached-resource.ts';
import type { ClientContext } from './downstream/services.ts';
import type { TypeStream } from './downstream/type-stream.ts';
import type { XdsStream } from './downstream/xds-server.ts';
import type { Access } from './model/access.ts';
import { type ResourceName, resourceName, type TypeUrl } from './model/brand.ts';
import type { Commit } from './model/catalog.ts';
import { type Clock, Sweep } from './model/clock.ts';
import { nameKey } from './model/holds.ts';
import { getOrMake } from './model/maps.ts';
import type { Parameters } from './model/parameters.ts';
import { type HeldVariant, isHeldByWildcard } from './model/rollout.ts';
import { isCollection, type Selection, type SelectionEntry } from './model/selection.ts';
import type { Holding, Subscription } from './model/subscription.ts';
import { errorText } from './model/text.ts';
import { type Selector, WILDCARD } from './model/transaction.ts';
import { typeInfo } from './model/types.ts';
import { parentGlob } from './model/xdstp.ts';
import type { Relay } from './relay.ts';
import type { Member, Moved } from './releases/canaries.ts';
import {
  type CanaryStream,
  type Fleet,
  outdated,
  type Standing,
  type Survey,
  subscribesTo,
  type Waiting,
} from './releases/waiting.ts';

const accepted: Standing = { kind: 'accepted' };
const waits: Standing = { kind: 'waiting' };
/** Streams are looked at for so long before everything else has its turn, and so long is left for that. Milliseconds. */
const sliceMs = 5;
/** More sets are one set, for those who look names up. */
const fewSets = 8;

/** A stream that subscribes to something that waits. */
interface Subscriber {
  readonly client: ClientContext;
  readonly types: readonly { readonly type: TypeStream; readonly parts: Parts }[];
  /** The parts of each type, or the union of many. */
  names: readonly ReadonlySet<string>[] | undefined;
  /** What it said last, as long as nothing happens to it; undefined: to be asked. */
  standing: Standing | undefined;
}

/**
 * The streams of a relay, as a rollout sees them. Each is looked at once for what waits, in slices, and again when it
 * subscribes to something else or is in another cohort.
 */
export class RelayFleet implements Fleet {
  readonly #relay: Relay;
  readonly #clock: Clock;
  readonly #indexes = new Map<TypeUrl, WaitingIndex>();
  /** What the subscribers subscribe to something of; undefined: something else waits now. */
  #waiting: Waiting | undefined;
  /** Types of which names are still to be read. */
  readonly #unread = new Set<WaitingIndex>();
  /** Streams to look at, by id. */
  #due = new Set<string>();
  #subscribers = new Map<string, Subscriber>();
  /** The same until a subscriber comes, goes or changes. */
  #members: readonly Member[] | undefined;
  #canaries: readonly CanaryStream[] = [];
  /** By stream: as it was when it rejected these names, before it subscribed to something else. As long as they wait. */
  readonly #rejected = new Map<string, CanaryStream>();
  readonly #slices: Sweep;

  /** `looked`: all streams have been looked at, and there is a survey. */
  constructor(relay: Relay, clock: Clock, looked: () => void) {
    this.#relay = relay;
    this.#clock = clock;
    this.#slices = new Sweep(clock, sliceMs, () => {
      const isDone = this.#work();
      if (isDone) looked();
      return !isDone;
    });
  }

  survey(waiting: Waiting): Survey {
    if (this.#waiting === undefined) this.#begin(waiting);
    if (!this.#work()) {
      this.#slices.start();
      return { complete: false, members: [], canaries: this.#canaries.map(outdated) };
    }
    this.#members ??= this.#membersNow();
    this.#canaries = this.#canariesNow(waiting);
    return { complete: true, members: this.#members, canaries: this.#canaries };
  }

  /** With what it rejected before; undefined: it does not subscribe to what waits. */
  canary(stream: XdsStream, waiting: Waiting): CanaryStream | undefined {
    const canary = this.#canaryNow(stream, waiting);
    const before = this.#rejected.get(stream.id);
    if (canary === undefined || before === undefined || canary.standing.kind === 'rejected')
      return canary ?? before;
    // Its end is about what it has now.
    return { ...canary, standing: before.standing };
  }

  #canaryNow(stream: XdsStream, waiting: Waiting): CanaryStream | undefined {
    if (this.#waiting === undefined) this.#begin(waiting);
    // What waits is known, and this stream may not have had its turn.
    for (const index of this.#unread) while (index.step());
    this.#unread.clear();
    const { id } = stream;
    // One that has ended is not due: what waits may have come since the last look.
    const known = this.#due.has(id) ? undefined : this.#subscribers.get(id);
    const subscriber = known ?? this.#subscriber(stream);
    return subscriber && canaryOf(id, subscriber, waiting);
  }

  /** A canary that rejects something is about to subscribe to something else, or to be somebody else. */
  changing(stream: XdsStream, waiting: Waiting): void {
    if (waiting.size === 0) return;
    this.touched(stream.id);
    const canary = this.#canaryNow(stream, waiting);
    if (canary?.standing.kind !== 'rejected' || !canary.standing.isFinal) return;
    const { names } = canary.standing;
    // It may reject something else then, and says nothing of the rest that it subscribed to.
    const before = { ...canary, stream: `${stream.id} before`, names: [names] };
    this.#rejected.set(stream.id, before);
  }

  /** What a stream says to what waits; undefined: it does not subscribe to it, or was not looked at yet. */
  standing(id: string): Standing['kind'] | undefined {
    const subscriber = this.#subscribers.get(id);
    if (subscriber === undefined || this.#waiting === undefined) return undefined;
    // Others have something else, and may have accepted that.
    if (subscriber.client.access.cohort !== 'canary') return 'waiting';
    return standingNow(subscriber, this.#waiting).kind;
  }

  /** It subscribes to something else, is somebody else, has answered, or has ended. */
  touched(id: string): void {
    if (this.#relay.server.get(id) === undefined) this.#rejected.delete(id);
    if (this.#waiting === undefined) return;
    const known = this.#subscribers.get(id);
    if (known !== undefined) known.standing = undefined;
    this.#due.add(id);
  }

  waitingChanged(): void {
    this.#waiting = undefined;
  }

  /** Nothing waits: nothing is kept of it. */
  over(): void {
    this.#waiting = undefined;
    this.#indexes.clear();
    this.#unread.clear();
    this.#due.clear();
    this.#subscribers.clear();
    this.#members = undefined;
    this.#canaries = [];
    this.#rejected.clear();
  }

  /** What a name shows may be something else now. */
  committed({ type, changed }: Commit): void {
    this.#forgetRejected(
      changed.keys().map((name) => nameKey(type, name)),
      (isOf) => isOf,
    );
    const index = this.#indexes.get(type);
    if (index === undefined || changed.size === 0) return;
    index.changed(changed.keys());
    const names = this.#waiting?.get(type);
    if (names !== undefined && changed.keys().some((name) => names.has(name))) this.#waiting = undefined;
  }

  moved(isMoved: (client: Moved) => boolean): void {
    const { server, polls } = this.#relay;
    server.reidentify(isMoved);
    polls.rereadRequests();
    if (server.isMoving) this.#slices.start();
  }

  get isMoving(): boolean {
    return this.#relay.server.isMoving;
  }

  stop(): void {
    this.#slices.stop();
  }

  #begin(waiting: Waiting): void {
    this.#waiting = waiting;
    for (const type of this.#indexes.keys()) if (!waiting.has(type)) this.#indexes.delete(type);
    this.#unread.clear();
    for (const [type, names] of waiting) {
      const index = getOrMake(this.#indexes, type, () => new WaitingIndex(this.#relay, type));
      index.begin(names);
      this.#unread.add(index);
    }
    this.#due = new Set(Iterator.from(this.#relay.server.values()).map(({ id }) => id));
    this.#subscribers = new Map();
    this.#members = undefined;
    this.#forgetRejected(
      waiting.entries().flatMap(([type, names]) => names.values().map((name) => nameKey(type, name))),
      (isOf) => !isOf,
    );
  }

  /** `keys`: read only if there is something. `isOver`: of what has some of them, or none. */
  #forgetRejected(keys: Iterable<string>, isOver: (hasSome: boolean) => boolean): void {
    if (this.#rejected.size === 0) return;
    const all = new Set(keys);
    for (const [id, { names }] of this.#rejected)
      if (isOver(names.some((own) => !own.isDisjointFrom(all)))) this.#rejected.delete(id);
  }

  /** A slice of what is to be done; false: there is more. */
  #work(): boolean {
    const end = this.#clock.monotonic() + sliceMs;
    if (this.isMoving) return false;
    if (this.#waiting === undefined) return true;
    for (const index of this.#unread) {
      while (index.step()) if (this.#clock.monotonic() > end) return false;
      this.#unread.delete(index);
    }
    for (const id of this.#due) {
      this.#due.delete(id);
      this.#look(id);
      if (this.#clock.monotonic() > end) return this.#due.size === 0;
    }
    return true;
  }

  #look(id: string): void {
    const before = this.#subscribers.get(id);
    const now = this.#subscriber(this.#relay.server.get(id));
    if (before !== undefined && now !== undefined && isSameSubscriber(before, now)) return;
    if (before === undefined && now === undefined) return;
    this.#members = undefined;
    if (now === undefined) this.#subscribers.delete(id);
    else this.#subscribers.set(id, now);
  }

  #subscriber(stream: XdsStream | undefined): Subscriber | undefined {
    if (stream?.client === undefined) return undefined;
    const { client } = stream;
    const types = stream.types.flatMap((type) => {
      const index = this.#indexes.get(type.info.url);
      if (index === undefined || type.subscription === undefined) return [];
      const parts = index.shown(type.selection, client.access);
      return parts.length === 0 ? [] : [{ type, parts }];
    });
    if (types.length === 0) return undefined;
    return { client, types, names: undefined, standing: undefined };
  }

  #membersNow(): readonly Member[] {
    const members = new Map<string, Member & { readonly subscribed: Set<Part> }>();
    for (const { client, types } of this.#subscribers.values()) {
      const { nodeKey, place, classKey, access, mayBeCanary } = client;
      const key = JSON.stringify([nodeKey, classKey, access.cohort, mayBeCanary]);
      const { cohort } = access;
      const created = () => ({ nodeKey, place, classKey, cohort, mayBeCanary, subscribed: new Set<Part>() });
      const known = getOrMake(members, key, created);
      for (const { parts } of types) for (const part of parts) known.subscribed.add(part);
    }
    return [...members.values()];
  }

  #canariesNow(waiting: Waiting): readonly CanaryStream[] {
    const canaries: CanaryStream[] = [];
    for (const [id, subscriber] of this.#subscribers) {
      if (subscriber.client.access.cohort !== 'canary') continue;
      const canary = canaryOf(id, subscriber, waiting);
      canaries.push(canary);
      const before = this.#rejected.get(id);
      // It has only subscribed to more: it may accept that after all.
      if (before?.classKey === canary.classKey && before.names.every((own) => subscribesTo(canary, own)))
        this.#rejected.delete(id);
    }
    return [...canaries, ...this.#rejected.values()];
  }
}

function isSameSubscriber(a: Subscriber, b: Subscriber): boolean {
  if (a.client !== b.client || a.types.length !== b.types.length) return false;
  return a.types.every(({ type, parts }, at) => {
    const other = b.types[at];
    return type === other?.type && parts === other.parts;
  });
}

function canaryOf(id: string, subscriber: Subscriber, waiting: Waiting): CanaryStream {
  const standing = standingNow(subscriber, waiting);
  subscriber.names ??= subscriber.types.flatMap(({ parts }) => fewOf(parts));
  const { client, names } = subscriber;
  return { stream: id, node: client.nodeKey, classKey: client.classKey, standing, names };
}

function standingNow(subscriber: Subscriber, waiting: Waiting): Standing {
  const standing = subscriber.standing ?? together(subscriber.types, waiting);
  // What it waits for comes without a word of the client.
  const isSettled = standing.kind === 'accepted' || (standing.kind === 'rejected' && standing.isFinal);
  subscriber.standing = isSettled ? standing : undefined;
  return standing;
}

const fewOf = (sets: Parts): Parts => (sets.length <= fewSets ? sets : [unionOf(sets)]);

/** Streams with equal subscriptions share their parts. */
const unions = new WeakMap<Parts, ReadonlySet<string>>();
const unionOf = (sets: Parts): ReadonlySet<string> =>
  sets.length === 1 && sets[0] !== undefined
    ? sets[0]
    : getOrMake(unions, sets, () => new Set(sets.flatMap((names) => [...names])));

/** What a canary says to what waits, over its types. */
function together(types: Subscriber['types'], waiting: Waiting): Standing {
  const standings = types.map(({ type, parts }) => standingOf(type, parts, waiting.get(type.info.url)));
  return (
    standings.find(({ kind }) => kind === 'rejected') ??
    standings.find(({ kind }) => kind === 'waiting') ??
    accepted
  );
}

/** In one type. `parts`: what it subscribes to of what waits; `waiting`: all of it. */
function standingOf(
  { info, subscription }: TypeStream,
  parts: Parts,
  waiting: ReadonlySet<ResourceName> = new Set(),
): Standing {
  if (subscription === undefined) return accepted;
  const { responses, pending } = subscription;
  const { short, url } = typeInfo(info.url);
  const { rejectedWhole } = responses;
  // It may be something else that it rejects or waits for, or of a name that waits what everybody has.
  const own = unionOf(parts);
  const held = (): IteratorObject<Holding> =>
    Iterator.from(subscription.holdings()).filter(
      ({ canonical }) => waiting.has(canonical) && own.has(nameKey(url, canonical)),
    );
  const rejected = responses.state === 'ERROR' ? held().filter(({ state }) => state === 'ERROR') : undefined;
  const first = rejected?.next().value;
  if (first !== undefined) {
    const { name, canonical, rejection } = first;
    const others = rejected?.filter((one) => one.rejection === rejection).map((one) => one.canonical) ?? [];
    // There may be 10,000 in a response of the state of the world: they are known without a look at each.
    const isWhole = rejection === rejectedWhole;
    const named = isWhole ? own : new Set([canonical, ...others].map((one) => nameKey(url, one)));
    const reason = `${short} ${name}: ${said(rejection?.message)}`;
    // Something else may be on its way. That is no other word on what it was sent last, if that still waits.
    return { kind: 'rejected', reason, names: named, isFinal: !pending || first.current };
  }
  if (!hasTaken(subscription, own, held)) return waits;
  // The last response only removed what waits.
  if (rejectedWhole === undefined) return accepted;
  return {
    kind: 'rejected',
    reason: `${short}: ${said(rejectedWhole.message)}`,
    names: own,
    isFinal: true,
  };
}

/** A client's words, as far as they are kept with a verdict. */
const longestReason = 1024;
const said = (message = ''): string => errorText(message, longestReason);

/**
 * It has answered all that it was sent, and nothing is to be sent now. Upstream may have yet to answer for something that
 * does not wait. After an earlier stream a client may have all of it: then nothing was sent on this one. `own`: what of it
 * waits.
 */
function hasTaken(
  { responses, pending, due }: Subscription,
  own: ReadonlySet<string>,
  held: () => Iterable<Holding>,
): boolean {
  // Before all that it has is looked at: after a commit thousands are to be sent something.
  if (due || responses.oldestOutstanding !== undefined) return false;
  if (!pending && responses.state !== 'NOT_SENT') return true;
  const all = [...held()];
  // What it gets by an alias, or has lost, is not among them.
  if (pending && new Set(all.map(({ canonical }) => canonical)).size < own.size) return false;
  return all.every(({ state, value, current }) => current && (state === 'SYNCED' || value === 'absent'));
}

/** What waits under one name. */
interface Difference {
  readonly name: ResourceName;
  /** Its `nameKey`, alone. */
  readonly key: ReadonlySet<string>;
  /** The name, and its aliases. */
  readonly selectors: readonly ResourceName[];
  /** The variants that come, go or change, also for wildcards alone. */
  readonly variants: readonly HeldVariant[];
}

/** What a subscription shows of what waits, by `nameKey`. Equal subscriptions share the sets. */
type Part = ReadonlySet<string>;
export type Parts = readonly Part[];

/** Undefined where nothing is shown. */
type PartsBySelector = Map<Selector, ReadonlySet<string> | undefined>;

const nothing: Parts = [];

/** The names of one type that wait, found by what clients subscribe to: a client costs what it subscribes to of them. */
export class WaitingIndex {
  readonly #relay: Pick<Relay, 'variantsOf'>;
  readonly #type: TypeUrl;
  /** Kept while neither cohort of the name changes. */
  readonly #differences = new Map<ResourceName, Difference>();
  /** By each name and alias. */
  #bySelector = new Map<Selector, Difference[]>();
  #byGlob = new Map<Selector, Difference[]>();
  /** Names that are not in the index yet. */
  #rest: Iterator<ResourceName> | undefined;
  /**
   * By parameters, and what rules allow. Clients can name anything: it has only selectors that something waits under,
   * and only parameters that are in use.
   */
  #parts = new WeakMap<Parameters, Map<string, PartsBySelector>>();
  #bySelection = new WeakMap<Selection, Map<string, Parts>>();

  constructor(relay: Pick<Relay, 'variantsOf'>, type: TypeUrl) {
    this.#relay = relay;
    this.#type = type;
  }

  /** These names wait now. They are read by `step`. */
  begin(names: ReadonlySet<ResourceName>): void {
    this.#rest = names.values();
    this.#bySelector = new Map();
    this.#byGlob = new Map();
    this.#parts = new WeakMap();
    this.#bySelection = new WeakMap();
    for (const name of this.#differences.keys()) if (!names.has(name)) this.#differences.delete(name);
  }

  /** Reads one more name; false: all have been read. */
  step(): boolean {
    const next = this.#rest?.next();
    if (next === undefined || next.done === true) return false;
    const name = next.value;
    const difference = getOrMake(this.#differences, name, () => this.#differenceOf(name));
    for (const selector of difference.selectors) {
      getOrMake(this.#bySelector, selector, () => []).push(difference);
      const glob = parentGlob(selector);
      if (glob !== undefined) getOrMake(this.#byGlob, glob, () => []).push(difference);
    }
    return true;
  }

  /** What either cohort has under these names is another now. */
  changed(names: Iterable<ResourceName>): void {
    for (const name of names) this.#differences.delete(name);
  }

  /** What a client with this access sees of it by this selection. */
  shown(selection: Selection, access: Access): Parts {
    const rules = access.unrestricted ? '' : access.key;
    const byRules = getOrMake(this.#bySelection, selection, () => new Map());
    return getOrMake(byRules, rules, () => {
      const parts = new Set<ReadonlySet<string>>();
      for (const entry of this.#candidates(selection)) {
        const part = this.#part(entry, access, rules);
        if (part !== undefined) parts.add(part);
      }
      return parts.size === 0 ? nothing : [...parts];
    });
  }

  /** Looked up from the smaller side. */
  *#candidates(selection: Selection): Iterable<SelectionEntry> {
    if (selection.size <= this.#bySelector.size) {
      yield* selection.entries.values();
      return;
    }
    yield* selection.collections;
    for (const selector of this.#bySelector.keys()) yield* selection.entriesFor(selector);
  }

  #part({ selector, parameters }: SelectionEntry, access: Access, rules: string) {
    const differences = this.#under(selector);
    if (differences === undefined) return undefined;
    const byRules = getOrMake(this.#parts, parameters, () => new Map());
    const known = getOrMake(byRules, rules, () => new Map());
    if (known.has(selector)) return known.get(selector);
    const isShown = ({ variants }: Difference): boolean =>
      variants.some(
        (one) =>
          (selector !== WILDCARD || isHeldByWildcard(one)) &&
          one.variant.constraints.matches(parameters) &&
          (access.unrestricted || access.admits(one.variant, parameters)),
      );
    const shown = new Set<Difference>();
    if (isCollection(selector) || access.unrestricted || access.allows(this.#type, selector))
      for (const one of differences) if (isShown(one)) shown.add(one);
    const [only] = shown;
    const names = (): ReadonlySet<string> => new Set([...shown].map(({ name }) => nameKey(this.#type, name)));
    const part = shown.size <= 1 ? only?.key : names();
    known.set(selector, part);
    return part;
  }

  /** Undefined: nothing waits there. */
  #under(selector: Selector): Iterable<Difference> | undefined {
    if (selector === WILDCARD) return this.#differences.values();
    return (isCollection(selector) ? this.#byGlob : this.#bySelector).get(selector);
  }

  #differenceOf(name: ResourceName): Difference {
    const before = this.#relay.variantsOf(this.#type, name, 'released');
    const after = this.#relay.variantsOf(this.#type, name, 'canary');
    const variants = [
      ...before.filter((one) => !after.some((other) => isSame(one, other))),
      ...after.filter((one) => !before.some((other) => isSame(one, other))),
    ];
    const aliases = variants.flatMap(({ variant }) => variant.aliases.map(resourceName));
    const selectors = aliases.length === 0 ? [name] : [...new Set([name, ...aliases])];
    return { name, key: new Set([nameKey(this.#type, name)]), selectors, variants };
  }
}

const isSame = (a: HeldVariant, b: HeldVariant): boolean =>
  a.variant.constraints.key === b.variant.constraints.key && isShownAlike(a, b);
