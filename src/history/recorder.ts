import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import { type Change, type ChangedName, type Content, NO_CONTENT, sameContents } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { Acceptance } from './acceptance.ts';
import type { History } from './history.ts';

/** What is there under a name. */
export interface Contents {
  /** What everybody has but the canaries. */
  released(type: TypeUrl, name: ResourceName): Content;
  /** Something of the type waits: what upstream says may be another thing than what is released. */
  isHeld(type: TypeUrl): boolean;
  /** What upstream says. */
  said(type: TypeUrl, name: ResourceName): Content;
  /** The names whose change was dropped by an operator. */
  discarded(type: TypeUrl): ReadonlySet<ResourceName>;
  /** Everything that is cached. */
  names(): Iterable<readonly [TypeUrl, ResourceName]>;
}

export interface RecorderOptions {
  readonly history: History;
  /** Hears which changes everybody gets. */
  readonly acceptance: Pick<Acceptance, 'released'>;
  readonly contents: Contents;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
}

/** Answers to what is asked for the first time share a change, until it has so many names: each copies them. */
const maxJoined = 1000;

type Side = ReadonlyMap<TypeUrl, ReadonlyMap<ResourceName, Content>>;
type Settled = Map<ResourceName, 'RELEASED' | 'REPLACED' | 'DISCARDED'>;

/** When a commit was recorded, and when it arrived, as `Clock.monotonic()` says it. */
interface Moment {
  readonly now: number;
  readonly receivedAt: number;
}

interface NewChange {
  readonly type: TypeUrl;
  readonly upstream: string;
  readonly names: readonly ChangedName[];
  readonly first: boolean;
  readonly reason: string;
}

/**
 * Makes changes of commits. A commit says which names changed, and not what they were: the last known content of each name
 * is remembered for that. Bodies are shared with the cache, so a name costs about a hundred bytes.
 */
export class Recorder {
  readonly #options: RecorderOptions;
  /** What everybody had when it was looked at last. No entry for a type: nobody has said anything of it yet. */
  readonly #released = new Map<TypeUrl, Map<ResourceName, Content>>();
  /** What upstream says, where that is not released. */
  readonly #pending = new Map<TypeUrl, Map<ResourceName, Content>>();

  /** Of what an operator does now. */
  #reason = '';
  /** Names of which something may have been dropped since the last commit. */
  readonly #touched = new Map<TypeUrl, Set<ResourceName>>();

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  /** What is cached now is no change: it was restored. */
  start(): void {
    const { contents } = this.#options;
    for (const [type, name] of contents.names()) this.#remember(type, name, contents.released(type, name));
  }

  /** Both sides have seen the commit. */
  committed({ type, changed, resolved, receivedAt }: Commit): void {
    this.#forgetDropped(type, changed);
    const isUnknown = !this.#released.has(type);
    if (isUnknown && resolved.length > 0) this.#released.set(type, new Map());
    if (changed.size === 0) return;
    const now = this.#options.clock.now();
    const names: ChangedName[] = [];
    const replaced: Settled = new Map();
    const isHeld = this.#options.contents.isHeld(type) || this.#pending.has(type);
    for (const name of changed.keys()) {
      const found = isHeld ? this.#look(type, name, replaced) : this.#lookAtReleased(type, name);
      if (found !== undefined) names.push(found);
    }
    this.#settle(type, replaced, { now, receivedAt });
    for (const { name, verdict, content } of isHeld ? names : []) {
      if (verdict === 'PENDING' && content !== undefined) this.#pendingOf(type).set(name, content.after);
    }
    if (names.length === 0) return;
    const first = (isUnknown || resolved.length > 0) && names.every(({ change }) => change === 'ADDED');
    this.#add({ type, names, first, upstream: upstreamOf(names), reason: '' }, { now, receivedAt });
  }

  /** An operator or the judge has released or discarded these names. Returns the change, if one was made. */
  gateChanged(type: TypeUrl, changed: Iterable<ResourceName>, receivedAt: number): Change | undefined {
    const { clock, contents } = this.#options;
    const now = clock.now();
    const names: ChangedName[] = [];
    const settled: Settled = new Map();
    const discarded = contents.discarded(type);
    for (const name of changed) {
      const before = knownOf(this.#released, type, name);
      const after = contents.released(type, name);
      const pending = this.#pending.get(type)?.get(name);
      if (!sameContents(before, after)) {
        this.#remember(type, name, after);
        if (pending !== undefined && sameContents(pending, after)) settled.set(name, 'RELEASED');
        else names.push(changedName(name, before, after, 'RELEASED'));
      } else if (discarded.has(name)) settled.set(name, 'DISCARDED');
    }
    this.#settle(type, settled, { now, receivedAt });
    if (names.length === 0) return undefined;
    const change = { type, names, first: false, upstream: '', reason: this.#reason };
    return this.#add(change, { now, receivedAt });
  }

  /** An operator changes what everybody has of these names. Returns the change, if one was made. */
  because(
    reason: string,
    type: TypeUrl,
    names: ReadonlySet<ResourceName>,
    run: () => void,
  ): Change | undefined {
    const before = this.#options.history.lastRevision;
    this.#reason = reason;
    run();
    const made = this.gateChanged(type, names, this.#options.clock.monotonic());
    this.#reason = '';
    const last = this.#options.history.last();
    return made ?? (last !== undefined && last.revision > before ? last : undefined);
  }

  /** What everybody has of a type. */
  released(type: TypeUrl): ReadonlyMap<ResourceName, Content> {
    return this.#released.get(type) ?? new Map();
  }

  /** Something about a name is not in the cache as it was. If no commit follows that names it, it was dropped. */
  touched(type: TypeUrl, name: ResourceName): void {
    if (this.#released.get(type)?.has(name) !== true) return;
    const known = this.#touched.get(type) ?? new Set();
    this.#touched.set(type, known.add(name));
  }

  #forgetDropped(committed: TypeUrl, changed: Commit['changed']): void {
    if (this.#touched.size === 0) return;
    const { contents } = this.#options;
    for (const [type, names] of this.#touched) {
      for (const name of names) {
        if (type === committed && changed.has(name)) continue;
        if (contents.said(type, name).length > 0) continue;
        this.#released.get(type)?.delete(name);
        this.#pending.get(type)?.delete(name);
      }
    }
    this.#touched.clear();
  }

  /** What the commit changed of a name; undefined: nothing that clients would see. */
  #look(type: TypeUrl, name: ResourceName, replaced: Settled): ChangedName | undefined {
    const { contents } = this.#options;
    const before = knownOf(this.#released, type, name);
    const released = contents.released(type, name);
    const said = contents.said(type, name);
    const pending = this.#pending.get(type)?.get(name);
    if (sameContents(said, pending ?? before) && sameContents(released, before)) return undefined;
    this.#remember(type, name, released);
    if (pending !== undefined) replaced.set(name, 'REPLACED');
    if (!sameContents(said, released)) return changedName(name, before, said, 'PENDING');
    return sameContents(before, said) ? undefined : changedName(name, before, said, 'RELEASED');
  }

  /** The same where nothing of the type waits: most relays have no rollout, and a response may change 40,000 names. */
  #lookAtReleased(type: TypeUrl, name: ResourceName): ChangedName | undefined {
    const before = knownOf(this.#released, type, name);
    const released = this.#options.contents.released(type, name);
    if (sameContents(released, before)) return undefined;
    this.#remember(type, name, released);
    return changedName(name, before, released, 'RELEASED');
  }

  #add(change: NewChange, { now: at, receivedAt }: Moment): Change {
    const { history } = this.#options;
    const last = history.last();
    const isReleased = change.names.every(({ verdict }) => verdict === 'RELEASED');
    const joins =
      change.first && last?.first === true && last.type === change.type && last.upstream === change.upstream;
    // Clients come one by one, and each may ask for another name for the first time.
    if (joins && last.names.length === last.added && last.names.length < maxJoined) {
      const joined = { ...last, names: [...last.names, ...change.names] };
      const counted = { ...joined, ...countsOf(joined.names) };
      history.replace(counted);
      return counted;
    }
    const releasedAt = isReleased ? at : undefined;
    const added = history.add({ ...change, ...countsOf(change.names), at, releasedAt });
    if (isReleased && !change.first) this.#options.acceptance.released(receivedAt, [added.revision]);
    return added;
  }

  /** What was pending of these names is not any more: the newest change of each gets this verdict. */
  #settle(type: TypeUrl, settled: Settled, { now, receivedAt }: Moment): void {
    if (settled.size === 0) return;
    const { history } = this.#options;
    const pending = this.#pending.get(type);
    for (const name of settled.keys()) pending?.delete(name);
    if (pending?.size === 0) this.#pending.delete(type);
    const seen = new Set<ResourceName>();
    const released: number[] = [];
    for (const change of [...history.changes()].toReversed()) {
      if (change.type !== type || !change.names.some((one) => isSettled(one, settled))) continue;
      const names = change.names.map((one) => {
        const verdict = isSettled(one, settled) ? settled.get(one.name) : undefined;
        if (verdict === undefined) return one;
        const own = seen.has(one.name) ? 'REPLACED' : verdict;
        seen.add(one.name);
        return { ...one, verdict: own };
      });
      const isReleased = !names.some(({ verdict }) => verdict === 'PENDING') && names.some(gotReleased);
      if (isReleased && change.releasedAt === undefined) released.push(change.revision);
      history.replace({ ...change, names, releasedAt: change.releasedAt ?? (isReleased ? now : undefined) });
    }
    this.#options.acceptance.released(receivedAt, released);
  }

  #remember(type: TypeUrl, name: ResourceName, content: Content): void {
    const known = this.#released.get(type) ?? new Map<ResourceName, Content>();
    this.#released.set(type, known);
    if (content.length === 0) known.delete(name);
    else known.set(name, content);
  }

  #pendingOf(type: TypeUrl): Map<ResourceName, Content> {
    const known = this.#pending.get(type) ?? new Map<ResourceName, Content>();
    this.#pending.set(type, known);
    return known;
  }
}

const isSettled = ({ name, verdict }: ChangedName, settled: Settled): boolean =>
  verdict === 'PENDING' && settled.has(name);

const gotReleased = ({ verdict }: ChangedName): boolean => verdict === 'RELEASED';

const knownOf = (side: Side, type: TypeUrl, name: ResourceName): Content =>
  side.get(type)?.get(name) ?? NO_CONTENT;

function changedName(
  name: ResourceName,
  before: Content,
  after: Content,
  verdict: ChangedName['verdict'],
): ChangedName {
  const change = before.length === 0 ? 'ADDED' : after.length === 0 ? 'REMOVED' : 'CHANGED';
  const bytes = after.reduce((sum, { variant }) => sum + (variant.payload?.bytes.length ?? 0), 0);
  return { name, change, bytes, verdict, content: { before, after } };
}

function countsOf(names: readonly ChangedName[]): Pick<Change, 'added' | 'changed' | 'removed'> {
  const count = (kind: ChangedName['change']): number => names.filter(({ change }) => change === kind).length;
  return { added: count('ADDED'), changed: count('CHANGED'), removed: count('REMOVED') };
}

/** One transaction is of one upstream. */
function upstreamOf(names: readonly ChangedName[]): string {
  for (const { content } of names) {
    const [of] = [...(content?.after ?? []), ...(content?.before ?? [])];
    if (of !== undefined) return of.variant.upstream;
  }
  return '';
}
