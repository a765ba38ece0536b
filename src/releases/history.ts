import type { ConstraintsKey, ResourceName, TypeUrl } from '../model/brand.ts';
import type {
  Change,
  ChangedName,
  ChangedVariant,
  ChangeVerdict,
  Content,
  RecordedChanges,
} from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import { nameKey } from '../model/holds.ts';
import { countIn, deleteIn, getOrMake, onceFor } from '../model/maps.ts';
import { Payloads } from '../model/payloads.ts';
import type { Variant } from '../model/resource.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { PendingName } from '../model/rollout.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';

/** So many changes are kept without bodies. */
const maxWithoutBodies = 100;
/** Names of a change without bodies. */
const maxNames = 1000;

/** The last changes, the oldest first: with the bodies before and after, as far as the limits allow. */
export class History {
  readonly #clock: Clock;
  readonly #limits: () => { readonly maxBytes: number; readonly maxAgeMs: number } | undefined;
  readonly #written: (change: Pick<Change, 'type' | 'revision'>) => void;
  /** Equal ones once, whatever the cache did with them meanwhile. */
  readonly #payloads = new Payloads();
  #besideBytes = 0;
  /** By revision, in their order. The first ones are without bodies. */
  readonly #changes = new Map<number, Change>();
  /** When they were recorded, by `Clock.monotonic()`: that the wall clock is set ages nothing. */
  readonly #recorded = new Map<number, number>();
  /** In which of them a name waits, by `nameKey`. */
  readonly #waiting = new Map<string, Set<number>>();
  #lastRevision = 0;
  /** The revision of the newest change without bodies. */
  #lastStripped = 0;
  #restoredRevision = 0;

  /**
   * `limits`: called each time; undefined: no bodies are kept. `written`: the change is new, or another than before, or it is
   * not kept any more, and has to be written.
   */
  constructor(
    clock: Clock,
    limits: () => { readonly maxBytes: number; readonly maxAgeMs: number } | undefined,
    written: (change: Pick<Change, 'type' | 'revision'>) => void,
  ) {
    this.#clock = clock;
    this.#limits = limits;
    this.#written = written;
  }

  get lastRevision(): number {
    return this.#lastRevision;
  }

  /** Of the last change before the restart; 0: nothing was restored. */
  get restoredRevision(): number {
    return this.#restoredRevision;
  }

  /** The last change that everybody has, with all before it that were not taken back. */
  get releasedRevision(): number {
    const [oldest] = this.#changes.keys();
    let released = (oldest ?? this.#lastRevision + 1) - 1;
    let waits = false;
    for (const change of this.#changes.values()) {
      // What an operator has made is what everybody has, whatever waits.
      const isMade = change.upstream === '' && change.reason !== '';
      waits = !isMade && (waits || verdictOf(change) === 'PENDING');
      if (isReleased(change) && !waits) released = change.revision;
    }
    return released;
  }

  /** Of the bodies that are kept. */
  get bytes(): number {
    return this.#payloads.bytes + this.#besideBytes;
  }

  get keepsBodies(): boolean {
    return this.#limits() !== undefined;
  }

  /** The oldest first. */
  changes(): Iterable<Change> {
    this.#expire();
    return this.#changes.values();
  }

  /** In which change of a name is what canaries have: behind it there may be one that is queued. Undefined: in none. */
  judgedRevision({ key, masked, queued }: PendingName): number | undefined {
    const all = masked === undefined ? this.#waiting.get(key) : undefined;
    return all && (queued ? Math.min(...all) : Math.max(...all));
  }

  /**
   * The changes of which all that is pending is among these names. What nobody has is the last that upstream has said.
   * Costs nothing by what else waits: there may be a thousand changes, each with names of many tenants.
   */
  waitingOf(names: readonly PendingName[]): readonly Change[] {
    this.#expire();
    const found = new Map<number, number>();
    for (const one of names) {
      const isLast = one.masked === 'queued';
      const revision = this.judgedRevision(isLast ? { ...one, masked: undefined, queued: false } : one);
      if (revision !== undefined) countIn(found, revision, 1);
    }
    return [...found].flatMap(([revision, count]) => {
      const change = this.#changes.get(revision);
      return change !== undefined && pendingKeys(change).length === count ? change : [];
    });
  }

  get(revision: number): Change | undefined {
    this.#expire();
    return this.#changes.get(revision);
  }

  /** How long ago it was recorded. */
  ageMs(revision: number): number {
    const now = this.#clock.monotonic();
    return now - (this.#recorded.get(revision) ?? now);
  }

  last(): Change | undefined {
    return this.#changes.get(this.#lastRevision);
  }

  add(change: Omit<Change, 'revision'>): Change {
    const added = this.#put({ ...change, revision: ++this.#lastRevision });
    this.#written(added);
    this.#expire();
    return added;
  }

  /** In the place of the change with this revision. */
  replace(change: Change): void {
    const before = this.#changes.get(change.revision);
    if (before === undefined) return;
    this.#dropBodies(before);
    this.#written(this.#put(change));
    this.#expire();
  }

  /** Before the first change. */
  restore({ changes, lastRevision }: RecordedChanges): void {
    this.#lastRevision = Math.max(lastRevision, this.#lastRevision, changes.at(-1)?.revision ?? 0);
    this.#restoredRevision = this.#lastRevision;
    for (const change of changes) this.#put(change);
    this.#expire();
  }

  #put(change: Change): Change {
    const kept = this.keepsBodies && isWhole(change) ? this.#keepBodies(change) : stripped(change);
    if (!isWhole(kept)) this.#lastStripped = Math.max(this.#lastStripped, kept.revision);
    this.#set(kept.revision, kept);
    const clock = this.#clock;
    getOrMake(this.#recorded, kept.revision, () => clock.monotonic() - Math.max(0, clock.now() - kept.at));
    return kept;
  }

  /** In the place of what it was; undefined: it is not kept any more. */
  #set(revision: number, change: Change | undefined): void {
    const before = this.#changes.get(revision);
    for (const key of before ? pendingKeys(before) : []) deleteIn(this.#waiting, key, revision);
    if (change === undefined) {
      this.#changes.delete(revision);
      return;
    }
    for (const key of pendingKeys(change)) getOrMake(this.#waiting, key, () => new Set()).add(revision);
    this.#changes.set(revision, change);
  }

  #keepBodies(change: Change): Change {
    const names = change.names.map((one) => {
      const { content } = one;
      if (content === undefined) return one;
      return { ...one, content: { before: this.#keep(content.before), after: this.#keep(content.after) } };
    });
    return { ...change, names };
  }

  /** The same content, with the bodies that are kept already. */
  #keep(content: Content): Content {
    this.#besideBytes += nameBytes;
    return content.map((held) => {
      const { variant } = held;
      this.#besideBytes += besideBody(variant);
      const payload = variant.payload && this.#payloads.share(variant.payload);
      return payload === variant.payload ? held : { ...held, variant: { ...variant, payload } };
    });
  }

  #dropBodies({ names }: Change): void {
    for (const { content } of names) {
      for (const dropped of content === undefined ? [] : [content.before, content.after]) {
        this.#besideBytes -= nameBytes;
        for (const { variant } of dropped) {
          this.#besideBytes -= besideBody(variant);
          this.#payloads.release(variant.payload);
        }
      }
    }
  }

  /** Clients have other parameters: what was for those of before would be for nobody. */
  strip(): void {
    for (const change of this.#changes.values()) if (hasBodies(change)) this.#strip(change);
  }

  /** From the oldest: bodies that are too old or too much, and then changes that are too many without. */
  #expire(): void {
    const limits = this.#limits();
    for (const change of this.#changes.values()) {
      if (!hasBodies(change)) continue;
      const fits =
        limits !== undefined &&
        this.bytes <= limits.maxBytes &&
        this.ageMs(change.revision) <= limits.maxAgeMs;
      if (fits) break;
      this.#strip(change);
    }
    for (const [revision, change] of this.#changes) {
      if (this.#changes.size <= maxWithoutBodies || hasBodies(change)) break;
      this.#set(revision, undefined);
      this.#recorded.delete(revision);
      this.#written(change);
    }
  }

  #strip(change: Change): void {
    this.#dropBodies(change);
    this.#lastStripped = Math.max(this.#lastStripped, change.revision);
    this.#set(change.revision, stripped(change));
    this.#written(change);
  }

  /** Whether everything after this change is kept with bodies: then what there was at it can be told. */
  reaches(revision: number): boolean {
    this.#expire();
    return revision >= this.#lastStripped;
  }

  /** The changes after a revision, the oldest first. */
  after(revision: number): Iterable<Change> {
    return this.#changes.values().filter((change) => change.revision > revision);
  }
}

/** The first of these that one of its names has. What was new in it everybody has from the start. */
const order: readonly ChangeVerdict[] = ['PENDING', 'DISCARDED', 'RELEASED', 'REPLACED'];

export function verdictOf({ names }: Pick<Change, 'names'>): ChangeVerdict {
  return order.find((verdict) => names.some((one) => one.verdict === verdict)) ?? 'RELEASED';
}

/** Nothing of it waits, and everybody has it, but for what of it was discarded or replaced. */
export function isReleased({ names }: Pick<Change, 'names'>): boolean {
  if (names.some(({ verdict }) => verdict === 'PENDING')) return false;
  return names.length === 0 || names.some(({ verdict }) => verdict === 'RELEASED');
}

/** What waits, by `nameKey`. A change stays as it is, and may have all names of a type. */
const pendingKeys = onceFor(({ type, names }: Change): readonly string[] =>
  names.filter(({ verdict }) => verdict === 'PENDING').map(({ name }) => nameKey(type, name)),
);

export const isWhole = onceFor(
  ({ names, added, changed, removed }: Change): boolean =>
    names.length === added + changed + removed && names.every(({ content }) => content !== undefined),
);

/** A rollback that changed nothing is whole without any. */
const hasBodies = (change: Change): boolean => change.names.length > 0 && isWhole(change);

function stripped(change: Change): Change {
  return { ...change, names: change.names.slice(0, maxNames).map(withoutBodies) };
}

const withoutBodies = (one: ChangedName): ChangedName => ({ ...one, content: undefined });

/** What a name costs beside its bodies, in bytes: by measurement, rounded up. */
const nameBytes = 400;

/** Constraints are in memory as bytes, key and expression, and a control plane may make them as large as a body. */
const constraintCopies = 4;

/** What a variant costs beside its body, in bytes. */
const besideBody = ({ constraints, metadata }: Variant): number =>
  constraintCopies * constraints.bytes.length + (metadata?.length ?? 0);

/** Contents by name, by type. */
export type StateAt = ReadonlyMap<TypeUrl, ReadonlyMap<ResourceName, Content>>;

/** Why what there was at a revision cannot be told, if so. */
export function reachable(history: History, revision: number): Result<undefined, GrpcStatus> {
  const { lastRevision, keepsBodies } = history;
  if (revision < 1 || revision > lastRevision) {
    return noSuchRevision(history, revision);
  }
  if (revision === lastRevision || history.reaches(revision)) return ok(undefined);
  const message = keepsBodies
    ? `revision ${revision} has expired: its bodies are no longer kept, or parameters have changed since (history.max_bytes, history.max_age)`
    : `the state at revision ${revision} was not kept: the configuration has history: false`;
  return fail({ code: Code.FAILED_PRECONDITION, message });
}

/**
 * What everybody had at a revision, of all names that have changed since; what is not in it is as it is now. The first
 * change of a name after the revision says what it was before. What was said first (`ChangedVariant.first`) was not there.
 */
export function releasedAt(history: History, revision: number): StateAt {
  const state = new Map<TypeUrl, Map<ResourceName, Content>>();
  for (const { type, names } of history.after(revision)) {
    const contents = getOrMake(state, type, () => new Map());
    for (const { name, content } of names)
      if (content !== undefined && !contents.has(name)) contents.set(name, content.before);
  }
  return state;
}

/**
 * What a rollback to a revision gives everybody of a type, where they have this now. The first change of a variant after
 * the revision says what it was. Unlike in `releasedAt`, what was said first stays: what there was before it is unknown,
 * which is not absent. Of what the changes do not say, nothing changes.
 *
 *     revision 1: shop for prod 1
 *     revision 2: shop for prod 2
 *     revision 3: shop for prod 2, for batch 2      clients of batch come, or come back
 *     back to 1:  shop for prod 1, for batch 2
 */
export function backTo(
  history: History,
  revision: number,
  type: TypeUrl,
  now: ReadonlyMap<ResourceName, Content>,
): Map<ResourceName, Content> {
  const changed = new Map<ResourceName, Map<ConstraintsKey, ChangedVariant | undefined>>();
  for (const change of history.after(revision)) {
    for (const { name, content } of change.type === type ? change.names : []) {
      if (content === undefined) continue;
      const variants = getOrMake(changed, name, () => new Map());
      const isNew = (held: ChangedVariant): boolean => !variants.has(keyOf(held));
      for (const held of content.before.filter(isNew)) variants.set(keyOf(held), held);
      for (const held of content.after.filter(isNew))
        variants.set(keyOf(held), held.first === true ? held : undefined);
    }
  }
  const contents = new Map(now);
  for (const [name, variants] of changed) {
    const rest = now.get(name)?.filter((held) => !variants.has(keyOf(held))) ?? [];
    contents.set(name, [...rest, ...variants.values().filter((held) => held !== undefined)]);
  }
  return contents;
}

const keyOf = ({ variant }: ChangedVariant): ConstraintsKey => variant.constraints.key;

export function noSuchRevision({ lastRevision }: History, revision: number): Result<never, GrpcStatus> {
  const last = `the last one is ${lastRevision}`;
  const gone = revision > lastRevision ? last : `${last}, and the oldest ones are not kept`;
  const known = lastRevision === 0 ? 'there is none yet' : gone;
  return fail({ code: Code.NOT_FOUND, message: `there is no revision ${revision}: ${known}` });
}
