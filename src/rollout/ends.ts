import type { CanaryStream } from './fleet.ts';
import type { JudgeSettings } from './judge.ts';
import type { Verdict } from './verdicts.ts';

/** A node may come back so soon that nobody has to know: Envoy tries again after half a second. Milliseconds. */
const returnMs = 1000;
/** A node that ends so often within one bake ends because of what it was sent, though it comes back each time. */
const mostReturns = 2;

/** A node of one class, of which no stream subscribes any more to what it was a canary of. */
interface End {
  readonly node: string;
  readonly classKey: string;
  /** What it subscribed to of what waited. */
  readonly names: ReadonlySet<string>;
  /** When it ended, within the last bake. */
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
  #ends: readonly End[] = [];
  /** Not looked at yet: the node may have other streams. */
  #fresh: readonly { readonly stream: CanaryStream; readonly at: number }[] = [];
  #findings: readonly Finding[] = [];

  /** What was found bad, the same values until something changes. */
  get verdicts(): readonly Verdict[] {
    return this.#findings;
  }

  ended(stream: CanaryStream, now: number): void {
    this.#fresh = [...this.#fresh, { stream, at: now }];
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    const stays = (one: { readonly names: ReadonlySet<string> }): boolean => one.names.isDisjointFrom(names);
    this.#ends = this.#ends.filter(stays);
    this.#findings = this.#findings.filter(stays);
  }

  /** Nothing waits for a verdict: what was found stays, and who ends now says nothing. */
  over(): void {
    this.#ends = [];
    this.#fresh = [];
  }

  /** All canaries that are there. */
  observe(canaries: readonly CanaryStream[], settings: JudgeSettings, now: number): void {
    const { bakeMs, maxDisconnects } = settings;
    if (this.#fresh.length + this.#ends.length + this.#findings.length === 0) return;
    const present = new Map<string, Set<string>>();
    for (const { classKey, node } of canaries) {
      const nodes = present.get(classKey) ?? new Set();
      present.set(classKey, nodes.add(node));
    }
    const isThere = (classKey: string, node: string): boolean => present.get(classKey)?.has(node) === true;
    for (const { stream, at } of this.#fresh)
      if (!isThere(stream.classKey, stream.node)) this.#add(stream, at);
    this.#fresh = [];
    this.#ends = this.#ends.flatMap((end) => {
      const isBack = isThere(end.classKey, end.node);
      const recent = end.times.filter((at) => at > now - bakeMs);
      if (recent.length === 0 && (end.isJudged || isBack)) return [];
      const times = recent.length === 0 ? end.times : recent;
      return [{ ...end, times, isBack, isJudged: counts({ times, isBack }, bakeMs, now) }];
    });
    const open = [...Map.groupBy(this.#ends, (end) => end.classKey)].flatMap(([classKey, ends]) => {
      const counted = ends.filter(({ isJudged }) => isJudged);
      const nodes = new Set([...(present.get(classKey) ?? []), ...counted.map(({ node }) => node)]);
      if (counted.length * 100 <= maxDisconnects * nodes.size) return [];
      const reason = `${counted.length} of ${nodes.size} canary streams ended within the bake: max_disconnects is ${maxDisconnects} percent`;
      const names = new Set(counted.flatMap((end) => [...end.names]));
      const finalAt = Math.max(...counted.flatMap(({ times }) => times)) + bakeMs;
      const known = this.#findings.find((one) => one.classKey === classKey && isEqual(one.names, names));
      return [known ?? { cause: 'disconnects' as const, reason, names, classKey, finalAt }];
    });
    this.#findings = [...new Set([...this.#findings.filter(({ finalAt }) => finalAt <= now), ...open])];
  }

  /** Of these names: a node may come back at once, and nothing is decided until then. */
  mayReturn(names: ReadonlySet<string>): boolean {
    return this.#ends.some((end) => !end.isBack && !end.isJudged && !end.names.isDisjointFrom(names));
  }

  /** When the first of them counts, if it does not come back; infinite: none may. */
  nextAt({ bakeMs }: JudgeSettings): number {
    const open = this.#ends.filter((end) => !end.isBack && !end.isJudged);
    return Math.min(...open.map(({ times }) => (times.at(-1) ?? 0) + patienceOf(bakeMs)));
  }

  /** How many nodes that subscribed to any of these names have ended within the last bake, and are not back. */
  count(names: ReadonlySet<string>): number {
    return this.#ends.filter((end) => !end.isBack && !end.names.isDisjointFrom(names)).length;
  }

  #add({ node, classKey, names }: CanaryStream, at: number): void {
    const isIt = (end: End): boolean => end.node === node && end.classKey === classKey;
    const before = this.#ends.find(isIt);
    const end: End = {
      node,
      classKey,
      names: new Set(names.flatMap((set) => [...set])),
      times: [...(before?.times ?? []), at],
      isBack: false,
      isJudged: false,
    };
    this.#ends = [...this.#ends.filter((one) => !isIt(one)), end];
  }
}

function counts({ times, isBack }: Pick<End, 'times' | 'isBack'>, bakeMs: number, now: number): boolean {
  return times.length > mostReturns || (!isBack && now - (times.at(-1) ?? now) >= patienceOf(bakeMs));
}

const patienceOf = (bakeMs: number): number => Math.min(returnMs, bakeMs / 2);

const isEqual = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean =>
  a.size === b.size && a.isSubsetOf(b);
