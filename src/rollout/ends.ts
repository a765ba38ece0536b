import type { JudgeSettings, Verdict } from './judge.ts';
import { type CanaryStream, isEqual } from './waiting.ts';

/** A node may come back so soon that nobody has to know: Envoy tries again after half a second. Milliseconds. */
const returnMs = 1000;
/** A node that ends so often within one bake ends because of what it was sent, though it comes back each time. */
const mostReturns = 2;
/** The oldest are forgotten: who may be a canary may also come under ever new names. */
const mostKept = 50_000;

/** A node of one class, of which no stream subscribes any more to what it was a canary of. */
interface End {
  readonly node: string;
  readonly classKey: string;
  /** What it subscribed to of what waited. */
  readonly names: ReadonlySet<string>;
  /** When it ended, within the last bake: the last ones, as many as decide. */
  readonly times: readonly number[];
  readonly isBack: boolean;
  /** It counts as an end. */
  readonly isJudged: boolean;
}

/** Too many nodes of one class have ended. */
interface Finding extends Verdict {
  readonly classKey: string;
  /** They may come back until then: it is no finding any more if enough do. */
  readonly finalAt: number;
}

/**
 * The nodes of canaries that have ended, for each class. An end that is followed by a return within the bake is none,
 * unless it happens again and again. A finding stays until upstream says something else under one of its names.
 */
export class Ends {
  /** By class and node. */
  #ends: ReadonlyMap<string, End> = new Map();
  /** Not looked at yet: the node may have other streams. */
  #fresh: { readonly stream: CanaryStream; readonly at: number }[] = [];
  #findings: readonly Finding[] = [];

  /** What was found bad, the same values until something changes. */
  get verdicts(): readonly Verdict[] {
    return this.#findings;
  }

  ended(stream: CanaryStream, now: number): void {
    if (this.#fresh.length < mostKept) this.#fresh.push({ stream, at: now });
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    const stays = (one: { readonly names: ReadonlySet<string> }): boolean => one.names.isDisjointFrom(names);
    this.#ends = new Map(this.#ends.entries().filter(([, end]) => stays(end)));
    this.#findings = this.#findings.filter(stays);
  }

  /** Nothing waits for a verdict: what was found stays, and who ends now says nothing. */
  over(): void {
    this.#ends = new Map();
    this.#fresh = [];
  }

  /** All canaries that are there. */
  observe(canaries: readonly CanaryStream[], settings: JudgeSettings, now: number): void {
    const { bakeMs, maxDisconnects } = settings;
    if (this.#fresh.length + this.#ends.size + this.#findings.length === 0) return;
    const present = new Map<string, Set<string>>();
    for (const { classKey, node } of canaries) {
      const nodes = present.get(classKey) ?? new Set();
      present.set(classKey, nodes.add(node));
    }
    const isThere = (classKey: string, node: string): boolean => present.get(classKey)?.has(node) === true;
    const ends = new Map(this.#ends);
    for (const { stream, at } of this.#fresh)
      if (!isThere(stream.classKey, stream.node)) add(ends, stream, at);
    this.#fresh = [];
    for (const [key, end] of ends) {
      const isBack = isThere(end.classKey, end.node);
      const recent = end.times.filter((at) => at > now - bakeMs);
      const times = recent.length === 0 ? end.times : recent;
      if (recent.length === 0 && (end.isJudged || isBack)) ends.delete(key);
      else ends.set(key, { ...end, times, isBack, isJudged: counts({ times, isBack }, bakeMs, now) });
    }
    this.#ends = ends;
    const open = [...Map.groupBy(ends.values(), (end) => end.classKey)].flatMap(([classKey, of]) => {
      const counted = of.filter(({ isJudged }) => isJudged);
      const nodes = new Set([...(present.get(classKey) ?? []), ...counted.map(({ node }) => node)]);
      if (counted.length * 100 <= maxDisconnects * nodes.size) return [];
      const reason = `${counted.length} of ${nodes.size} canary streams ended within the bake: max_disconnects is ${maxDisconnects} percent`;
      const names = new Set(counted.flatMap((end) => [...end.names]));
      const finalAt = counted.reduce((last, { times }) => Math.max(last, times.at(-1) ?? 0), 0) + bakeMs;
      const known = this.#findings.find((one) => one.classKey === classKey && isEqual(one.names, names));
      return [known ?? { cause: 'disconnects' as const, reason, names, classKey, finalAt }];
    });
    this.#findings = [...new Set([...this.#findings.filter(({ finalAt }) => finalAt <= now), ...open])];
  }

  /** Of these names: a node may come back at once, and nothing is decided until then. */
  mayReturn(names: ReadonlySet<string>): boolean {
    return this.#ends
      .values()
      .some((end) => !end.isBack && !end.isJudged && !end.names.isDisjointFrom(names));
  }

  /** When the first of them counts, if it does not come back; infinite: none may. */
  nextAt({ bakeMs }: JudgeSettings): number {
    let first = Number.POSITIVE_INFINITY;
    for (const { times, isBack, isJudged } of this.#ends.values())
      if (!isBack && !isJudged) first = Math.min(first, (times.at(-1) ?? 0) + patienceOf(bakeMs));
    return first;
  }

  /** How many nodes that subscribed to any of these names have ended within the last bake, and are not back. */
  count(names: ReadonlySet<string>): number {
    let count = 0;
    for (const end of this.#ends.values()) if (!end.isBack && !end.names.isDisjointFrom(names)) count++;
    return count;
  }
}

function add(ends: Map<string, End>, { node, classKey, names }: CanaryStream, at: number): void {
  const key = JSON.stringify([classKey, node]);
  const times = [...(ends.get(key)?.times ?? []), at].slice(-mostReturns - 1);
  ends.delete(key);
  const all = new Set(names.flatMap((set) => [...set]));
  ends.set(key, { node, classKey, names: all, times, isBack: false, isJudged: false });
  const [oldest] = ends.keys();
  if (ends.size > mostKept && oldest !== undefined) ends.delete(oldest);
}

function counts({ times, isBack }: Pick<End, 'times' | 'isBack'>, bakeMs: number, now: number): boolean {
  return times.length > mostReturns || (!isBack && now - (times.at(-1) ?? now) >= patienceOf(bakeMs));
}

const patienceOf = (bakeMs: number): number => Math.min(returnMs, bakeMs / 2);
