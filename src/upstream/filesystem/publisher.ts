import type { TypeUrl } from '../../model/brand.ts';
import type { Parameters } from '../../model/parameters.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, type Put, type Selector, transaction } from '../../model/transaction.ts';
import type { UpstreamSink } from '../../model/upstream.ts';
import { getOrMake } from './maps.ts';
import { emptyContent, type TypeContent } from './merge.ts';

/** What was last published of a type. */
interface Published {
  readonly content: TypeContent;
  /** False while a file that never was good seems to hold some of it: what is missing is unknown, not absent. */
  readonly complete: boolean;
}

/** Knows who wants what of the files, and turns contents into transactions. */
export class Publisher {
  readonly #holder: Holder;
  readonly #sink: UpstreamSink;
  readonly #interests = new Map<TypeUrl, Map<Selector, Map<Parameters, Interest>>>();
  /** Not answered yet. They are answered together, as one request of a client brings many. */
  readonly #unanswered = new Set<Interest>();
  readonly #published = new Map<TypeUrl, Published>();
  #withheld: ReadonlySet<TypeUrl> = new Set();
  #scanned = false;
  #answering = false;
  #stopped = false;

  constructor(holder: Holder, sink: UpstreamSink) {
    this.#holder = holder;
    this.#sink = sink;
  }

  stop(): void {
    this.#stopped = true;
  }

  subscribe(interest: Interest): void {
    const selectors = getOrMake(
      this.#interests,
      interest.type,
      () => new Map<Selector, Map<Parameters, Interest>>(),
    );
    const sets = getOrMake(selectors, interest.selector, () => new Map<Parameters, Interest>());
    sets.set(interest.parameters, interest);
    this.#unanswered.add(interest);
    if (this.#scanned) this.#answerSoon();
  }

  unsubscribe({ type, selector, parameters }: Interest): void {
    const selectors = this.#interests.get(type);
    const sets = selectors?.get(selector);
    const known = sets?.get(parameters);
    if (known === undefined) return;
    this.#unanswered.delete(known);
    sets?.delete(parameters);
    if (sets?.size === 0) selectors?.delete(selector);
    if (selectors?.size === 0) this.#interests.delete(type);
  }

  /**
   * The files' whole content, types in the order in which they are published; of the `withheld` types some may be
   * missing.
   */
  publish(contents: ReadonlyMap<TypeUrl, TypeContent>, withheld: ReadonlySet<TypeUrl>): void {
    this.#scanned = true;
    this.#withheld = withheld;
    // What is gone goes last: what referred to it has been changed by then (protocol §8, Order on ADS).
    for (const type of new Set([...contents.keys(), ...this.#interests.keys(), ...this.#published.keys()])) {
      this.#publishType(type, contents.get(type) ?? emptyContent);
    }
  }

  #publishType(type: TypeUrl, content: TypeContent): void {
    const complete = !this.#withheld.has(type);
    const before = this.#published.get(type);
    const same = before?.content.digest === content.digest && before.content.version === content.version;
    if (same && before.complete === complete) return;
    this.#published.set(type, { content, complete });
    const interests: Interest[] = [];
    for (const sets of this.#interests.get(type)?.values() ?? []) interests.push(...sets.values());
    for (const interest of interests) this.#unanswered.delete(interest);
    this.#apply(type, content, allPuts(content), complete, interests);
  }

  /** After the caller is done: it may be in the middle of a change of its own. */
  #answerSoon(): void {
    if (this.#answering) return;
    this.#answering = true;
    queueMicrotask(() => {
      this.#answering = false;
      this.#answer();
    });
  }

  #answer(): void {
    const byType = Map.groupBy(this.#unanswered, ({ type }) => type);
    this.#unanswered.clear();
    for (const [type, interests] of byType) {
      const before = this.#published.get(type);
      const content = before?.content ?? emptyContent;
      const complete = !this.#withheld.has(type);
      this.#published.set(type, { content, complete });
      const all = before === undefined || interests.some(({ selector }) => isCollection(selector));
      const names = new Set(interests.map(({ selector }) => selector));
      // Given again, as the cache may have dropped what nobody subscribed to.
      const puts = all ? allPuts(content) : [...names].flatMap((name) => content.byName.get(name) ?? []);
      this.#apply(type, content, puts, all && complete, interests);
    }
  }

  #apply(
    type: TypeUrl,
    content: TypeContent,
    puts: readonly Put[],
    complete: boolean,
    interests: readonly Interest[],
  ): void {
    if (this.#stopped) return;
    const resolved = this.#withheld.has(type) ? [] : interests;
    this.#sink.apply(
      transaction({ holder: this.#holder, type, version: content.version, puts, complete, resolved }),
    );
  }
}

function allPuts(content: TypeContent): Put[] {
  return [...content.byName.values()].flat();
}
