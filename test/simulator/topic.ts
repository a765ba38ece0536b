import { getOrMake } from '../../src/model/maps.ts';
import { matches, matchesHex, type Parameters } from './constraints.ts';
import type { Role, Wish } from './control-plane.ts';
import { identity, type Received, type ReceivedResource } from './messages.ts';
import { Violation } from './violation.ts';
import { catalog, isBad, type Kind, type World } from './world.ts';

/** What a client subscribes to of a type. */
export interface Wanted {
  readonly names: ReadonlySet<string>;
  readonly wildcard: boolean;
}

export const NOTHING: Wanted = { names: new Set(), wildcard: false };

/** What the relay knew when it wrote a response. */
export interface Context {
  readonly wanted: Wanted;
  /** The parameters that the client is seen with: one set, or those of its locators. */
  readonly forms: readonly Parameters[];
  /** The newest revision that the relay can have heard of. */
  readonly known: number;
  /** Nothing that it has heard of is older than this one. */
  readonly base: number;
  /** The names that are new in the response; the others were in the one before. */
  readonly changed: readonly string[];
}

export interface TopicOptions {
  readonly kind: Kind;
  readonly world: World;
  readonly protocol: 'sotw' | 'delta';
  /** It keeps constraints apart: a locator client, or one that is told of constraints. */
  readonly constrained: boolean;
  readonly loss: (byName: boolean) => Loss;
  /** What comes anew to a wildcard may come first with a content from before it was removed. */
  readonly returnsKept: () => boolean;
  /** What is asked by name may be taken for absent before it is answered. */
  readonly hasty: () => boolean;
  /**
   * Control planes have said nothing, or an error alone, of what is wanted for these parameters, as nothing of it is there
   * or is new.
   */
  readonly unanswered: (wish: Wish) => boolean;
  /** It sends locators. */
  readonly locators: boolean;
}

interface Held {
  readonly name: string;
  readonly constraints: string;
  readonly content: string;
  readonly tag: string;
}

/**
 * What the way down cannot tell of a resource. SotW, where absence means nothing: the deletion of what was asked for
 * by name; with variants, which of those that are so left over is the last (protocol §5, Ambiguity).
 */
export type Loss = 'nothing' | 'deletions' | 'choices';

/** One type as a client knows it: what it wants, what it holds, and what it may be told next. */
export class Topic {
  readonly kind: Kind;
  readonly #options: TopicOptions;
  wanted: Wanted = NOTHING;
  /** SotW: something was named on this stream. */
  named = false;
  nonce = '';
  version = '';
  /** Delta: by (constraints, name); SotW: by (form of a locator client, name), as the last match wins where nothing can be deleted. */
  #state = new Map<string, Held>();
  /** What the last rejected response left open: the client's own doing. */
  readonly #rejected = new Set<string>();
  #allRejected = false;
  /** By (form, name) and constraints, the revision that the client has seen at least. Undefined: for this form for certain. */
  readonly #floors = new Map<string, Map<string | undefined, number>>();

  constructor(options: TopicOptions) {
    this.kind = options.kind;
    this.#options = options;
  }

  /** A new stream. What is kept is what the client still wants, or nothing. */
  reset(keep: boolean): void {
    this.named = false;
    this.nonce = '';
    if (!keep) {
      this.#state.clear();
      this.version = '';
      this.#allRejected = false;
    }
    this.forgetUnwanted();
  }

  forgetUnwanted(): void {
    for (const [key, { name }] of this.#state) if (!this.wants(this.wanted, name)) this.#state.delete(key);
  }

  /** `initial_resource_versions`. */
  claim(): Map<string, string> {
    const versions = new Map<string, string>();
    for (const { name, tag } of this.#state.values()) versions.set(name, tag);
    return versions;
  }

  /** Any answer may be as old as this: it comes from elsewhere now. */
  lowerFloors(base: number): void {
    for (const floors of this.#floors.values()) lower(floors, floors, base);
  }

  /**
   * What it knows by the wildcard it asks for by name, too: upstream, that is another stream (protocol §5b), which may
   * be as far back as this.
   */
  askByName(names: readonly string[], forms: readonly Parameters[], base: number): void {
    if (!this.wanted.wildcard) return;
    for (const key of names.flatMap((name) => forms.map((form) => identity(form.key, name)))) {
      const floors = this.#floors.get(key);
      if (floors !== undefined) lower(floors, floors, base);
    }
  }

  get held(): Iterable<ReceivedResource> {
    return this.#state.values();
  }

  get holdsAny(): boolean {
    return this.#state.size > 0;
  }

  holds(name: string): boolean {
    return this.contentOf(name) !== undefined;
  }

  /** Of a client that keeps no constraints apart. */
  contentOf(name: string): string | undefined {
    for (const held of this.#state.values()) if (held.name === name) return held.content;
    return undefined;
  }

  wants(wanted: Wanted, name: string): boolean {
    return wanted.names.has(name) || (wanted.wildcard && !catalog[this.kind].hidden.includes(name));
  }

  isComplete(wanted: Wanted): boolean {
    return this.#options.protocol === 'sotw' && (catalog[this.kind].full || wanted.wildcard);
  }

  /** Checks a response and takes it in, unless it is rejected. */
  receive(received: Received, context: Context, reject: boolean): void {
    this.#wellFormed(received, context);
    const complete = this.isComplete(context.wanted);
    const before = this.#state;
    const after =
      this.#options.protocol === 'delta'
        ? this.#foldDelta(received)
        : this.#foldSotw(received, context, complete);
    for (const name of this.#mentioned(received, context, complete)) {
      this.#observe(name, before, after, received, context);
    }
    if (reject) this.#reject(received, complete);
    else this.#accept(after, received, complete);
  }

  #wellFormed(received: Received, context: Context): void {
    const seen = new Set<string>();
    const once = (id: string): void => {
      if (seen.has(id)) throw new Violation(1, `${id} is twice in one response`);
      seen.add(id);
    };
    for (const { name, constraints, content } of received.resources) {
      once(identity(constraints, name));
      if (!this.#options.constrained && constraints !== '') {
        throw new Violation(1, `${name} has constraints, for a client of plain names`);
      }
      // What it had by name it may keep for a moment, while its wildcard's complete state waits to be exact.
      const kept = context.wanted.wildcard && this.#kept(name, content, context);
      if (!kept && !this.wants(context.wanted, name)) throw new Violation(1, `${name} is not subscribed`);
      if (content === '') throw new Violation(1, `${name} has no content`);
      if (this.#kept(name, content, context)) continue;
      if (!context.forms.some((form) => matchesHex(constraints, form))) {
        throw new Violation(1, `${name} has constraints that do not match`);
      }
    }
    for (const { name, code } of received.errors) {
      if (!this.#options.world.faults.has(`${this.kind} ${name} ${code}`))
        throw new Violation(1, `an error ${code} of ${name}, which upstream never told of`);
    }
    for (const name of received.removed) once(identity('', name));
    for (const { name, constraints } of received.removedVariants) once(identity(constraints, name));
  }

  #foldDelta(received: Received): Map<string, Held> {
    const after = new Map(this.#state);
    for (const name of received.removed) after.delete(identity('', name));
    for (const { name, constraints } of received.removedVariants) after.delete(identity(constraints, name));
    for (const resource of received.resources) {
      after.set(identity(resource.constraints, resource.name), resource);
    }
    return after;
  }

  #foldSotw(received: Received, { forms }: Context, complete: boolean): Map<string, Held> {
    const after = complete ? new Map<string, Held>() : new Map(this.#state);
    for (const form of forms) {
      const own = new Map<string, ReceivedResource[]>();
      for (const resource of received.resources) {
        if (!matchesHex(resource.constraints, form)) continue;
        own.set(resource.name, [...(own.get(resource.name) ?? []), resource]);
      }
      for (const [name, resources] of own) {
        if (resources.length > forms.length) throw new Violation(3, `${name} comes in several variants`);
        const [first] = resources;
        if (first !== undefined) after.set(this.#slot(form, name), first);
      }
    }
    return after;
  }

  #mentioned(received: Received, { wanted }: Context, complete: boolean): Set<string> {
    const names = new Set(received.resources.map(({ name }) => name));
    for (const name of received.removed) names.add(name);
    for (const { name } of received.removedVariants) names.add(name);
    for (const { name } of received.errors) names.add(name);
    if (complete) {
      for (const { name } of this.#state.values()) if (this.wants(wanted, name)) names.add(name);
    }
    return names;
  }

  /** What the client sees of a name from now on, by each of its parameter sets, was so upstream at some time. */
  #observe(
    name: string,
    before: ReadonlyMap<string, Held>,
    after: ReadonlyMap<string, Held>,
    received: Received,
    context: Context,
  ): void {
    // With a wildcard, what is unsubscribed by name is removed unless the wildcard shows it (protocol §4.5).
    const wanted = this.wants(context.wanted, name);
    const told = received.removed.includes(name) || received.removedVariants.some((one) => one.name === name);
    // In delta, NOT_FOUND is a removal (protocol §8). Who has rejected the removal before has itself to blame.
    const lost =
      this.#options.protocol === 'delta' &&
      !this.#rejected.has(name) &&
      received.errors.some((one) => one.name === name && one.code === 5);
    if (lost && context.forms.every((form) => this.#seenBy(form, name, after).length > 0))
      throw new Violation(2, `${name} is said to be missing, but held`);
    let absentSomewhere = false;
    for (const form of context.forms) {
      const held = this.#seenBy(form, name, before);
      const now = this.#seenBy(form, name, after);
      // A client that has rejected the removal of the one before has itself to blame.
      if (now.length > context.forms.length && !this.#rejected.has(name)) {
        throw new Violation(3, `${name} is held in ${now.length} variants that match ${form.key}`);
      }
      // Of several that match, the others may be left over from another of the client's parameter sets.
      const news = now.filter((one) => !held.includes(one) && !this.#kept(name, one.content, context));
      // Whose removal the client has rejected has gone all the same.
      const anew = held.length === 0 || this.#rejected.has(name);
      // What these parameters alone had is gone, and this is all that they have in its place.
      const isTheirs = now.length === 1 && held.some((one) => !this.#maySuitOthers(form, one, context));
      const failures = news.flatMap((one) => this.#check(form, name, one, context, { anew, isTheirs }) ?? []);
      const [failure] = failures;
      if (failure !== undefined && failures.length === news.length) throw failure;
      if (now.length > 0) continue;
      absentSomewhere = true;
      // What was not there before is no news, unless it was told in so many words.
      // With several sets, what is gone for one may have been shown by another that is not answered yet.
      if (held.length > 0 && wanted && context.forms.length === 1) this.#absent(form, name, context);
    }
    // By its name goes what was sent without constraints, also where a variant with constraints replaces it (§5.1). A
    // client that has rejected the removal of the variant has itself to blame, and so has one that has unsubscribed it
    // meanwhile and has dropped it.
    const isSwapped = before.has(identity('', name)) || !this.wants(this.wanted, name);
    if (!absentSomewhere && received.removed.includes(name) && !isSwapped && !this.#rejected.has(name)) {
      throw new Violation(2, `${name} is removed, but held`);
    }
    if ((told || lost) && wanted && context.forms.length === 1 && absentSomewhere) {
      const [form] = context.forms;
      if (form !== undefined) this.#absent(form, name, context);
    }
    if (wanted && context.forms.length > 1) this.#absentForAll(name, before, after, context);
  }

  /** What is gone for all of several sets must have been gone for one of them. */
  #absentForAll(
    name: string,
    before: ReadonlyMap<string, Held>,
    after: ReadonlyMap<string, Held>,
    context: Context,
  ): void {
    const { forms } = context;
    if (this.#isHasty(name, context) || this.#rejected.has(name)) return;
    if (forms.some((form) => this.#seenBy(form, name, after).length > 0)) return;
    if (forms.every((form) => this.#seenBy(form, name, before).length === 0)) return;
    const failures = forms.flatMap((form) => this.#check(form, name, undefined, context) ?? []);
    const [failure] = failures;
    if (failure !== undefined && failures.length === forms.length) throw failure;
  }

  /** Where a SotW client keeps what it has for one of its parameter sets; for plain names there is only one. */
  #slot(form: Parameters, name: string): string {
    return identity(this.#options.locators ? form.key : '', name);
  }

  /** A complete state may still have what the client has, for the sake of make before break (protocol §8). */
  #kept(name: string, content: string, { wanted, changed }: Context): boolean {
    if (this.#options.protocol !== 'sotw') return false;
    for (const held of this.#state.values()) if (held.name === name && held.content === content) return true;
    return this.isComplete(wanted) && !changed.includes(name);
  }

  #seenBy(form: Parameters, name: string, state: ReadonlyMap<string, Held>): Held[] {
    if (this.#options.protocol === 'sotw') {
      const held = state.get(this.#slot(form, name));
      return held === undefined ? [] : [held];
    }
    return [...state.values()].filter((held) => held.name === name && matchesHex(held.constraints, form));
  }

  #maySuitOthers(form: Parameters, { constraints }: Held, { forms }: Context): boolean {
    return forms.some((one) => one !== form && matchesHex(constraints, one));
  }

  #loss(name: string, form: Parameters): Loss {
    const { loss, world } = this.#options;
    const byName = !this.wanted.wildcard || this.wanted.names.has(name);
    const own = loss(byName);
    if (own !== 'choices') return own;
    // Where all that there was for these parameters has had the same constraints, each replaces the one before.
    const matching = world
      .earlier(this.kind, name)
      .flat()
      .filter(({ constraints }) => matches(constraints.message, form));
    if (new Set(matching.map(({ constraints }) => constraints.label)).size > 1) return 'choices';
    return byName ? 'deletions' : 'nothing';
  }

  #absent(form: Parameters, name: string, context: Context): void {
    if (this.#isHasty(name, context)) return;
    const failure = this.#check(form, name, undefined, context);
    if (failure !== undefined) throw failure;
  }

  #isHasty(name: string, { wanted }: Context): boolean {
    return wanted.names.has(name) && this.#options.hasty();
  }

  #check(
    form: Parameters,
    name: string,
    news: Held | undefined,
    { known, base, wanted, forms }: Context,
    { anew = false, isTheirs = false } = {},
  ): Violation | undefined {
    const { content, constraints } = news ?? {};
    const floors = getOrMake(this.#floors, identity(form.key, name), () => new Map());
    // A variant that matches another of its parameter sets, too, may have been sent for that one, and this one for `form`.
    const isForAnother = (before: string | undefined): boolean =>
      before !== undefined &&
      constraints !== undefined &&
      forms.some((one) => matchesHex(before, one) && !matchesHex(constraints, one));
    const own = [...floors].filter(([before]) => !isForAnother(before));
    const [newest = base] = own.map(([, revision]) => revision).toSorted((a, b) => b - a);
    const loss = this.#loss(name, form);
    // What was deleted unheard comes again as it was.
    const unbounded =
      loss === 'choices' ||
      (anew && (loss === 'deletions' || (wanted.wildcard && this.#options.returnsKept())));
    const floor = unbounded ? 0 : newest;
    const { world } = this.#options;
    const seen = world.seen(this.kind, name, form, content, floor);
    if (seen === undefined) {
      const ever = world.seen(this.kind, name, form, content, 0);
      const when = ever === undefined ? 'never was so upstream' : `was so before revision ${floor} only`;
      const what = content === undefined ? 'is removed' : `= ${content}`;
      return new Violation(content === undefined ? 2 : 1, `${name} ${what} for {${form.key}}, which ${when}`);
    }
    // What comes next may be from a replica that lags behind the one that this came from.
    const least = Math.min(seen, known);
    lower(floors, own, least);
    floors.set(isTheirs ? undefined : constraints, least);
    return undefined;
  }

  #reject(received: Received, complete: boolean): void {
    if (complete) {
      this.#allRejected = true;
      return;
    }
    const { resources, removed, removedVariants } = received;
    for (const { name } of [...resources, ...removedVariants]) this.#rejected.add(name);
    for (const name of removed) this.#rejected.add(name);
  }

  #accept(after: Map<string, Held>, received: Received, complete: boolean): void {
    this.#state = after;
    this.version = received.version;
    if (complete) {
      this.#allRejected = false;
      this.#rejected.clear();
      return;
    }
    // Where constraints are kept apart, what was to go with a rejected swap stays: its removal is not said again.
    if (this.#options.constrained) return;
    for (const { name } of [...received.resources, ...received.removedVariants]) this.#rejected.delete(name);
    for (const name of received.removed) this.#rejected.delete(name);
  }

  /** Rule 4. */
  settle(forms: readonly Parameters[]): void {
    if (this.#allRejected) return;
    const { world } = this.#options;
    const { revision } = world;
    const complete = this.isComplete(this.wanted);
    const expected = new Map<string, string[][]>();
    for (const name of catalog[this.kind].names) {
      if (!this.wants(this.wanted, name)) continue;
      const contents = forms.map((form) =>
        world.matching(this.kind, name, form, revision).map(({ content }) => content),
      );
      expected.set(name, contents);
    }
    for (const [name, contents] of expected) {
      if (this.#rejected.has(name) || contents.flat().some(isBad)) continue;
      for (const [index, form] of forms.entries()) {
        const possible = contents[index] ?? [];
        const held = this.#seenBy(form, name, this.#state).map(({ content }) => content);
        if (this.#loss(name, form) === 'choices') {
          if (possible.length > 0 && held.length === 0)
            throw new Violation(4, `${name} is not there, for {${form.key}}`);
          continue;
        }
        if (possible.length === 0 && (held.length === 0 || this.#isUntold(name, form))) continue;
        if (forms.length > 1 && this.#keepsDeleted(complete) && this.#wasAmbiguous(name, form)) continue;
        if (!held.some((content) => possible.includes(content))) {
          const wanted = possible.length === 0 ? 'nothing' : possible.join(' or ');
          throw new Violation(
            4,
            `${name} is ${held.join(' and ') || 'not there'}, not ${wanted}, for {${form.key}}`,
          );
        }
      }
    }
    if (this.#options.protocol !== 'delta') return;
    for (const { name, constraints } of this.#state.values()) {
      if (!expected.has(name) || this.#rejected.has(name)) continue;
      if (forms.some((form) => this.#loss(name, form) !== 'nothing' || matchesHex(constraints, form)))
        continue;
      throw new Violation(4, `${name} is still held with constraints that do not match`);
    }
  }

  /** Whether it has this content, though it could hear better. `isThere`: whether there is anything of the name. */
  has(
    name: string,
    content: string,
    forms: readonly Parameters[],
    isThere: (form: Parameters) => boolean,
  ): boolean {
    if (!this.wants(this.wanted, name)) return false;
    if (forms.every((form) => !isThere(form) && this.#isUntold(name, form))) return false;
    return this.#state.values().some((held) => held.name === name && held.content === content);
  }

  /** Where there is nothing of a name, nothing says so to the client or to its relay. */
  #isUntold(name: string, form: Parameters): boolean {
    const isLost = this.#loss(name, form) !== 'nothing' || this.#keepsDeleted(this.isComplete(this.wanted));
    const { names, wildcard } = this.wanted;
    const isUnanswered = (role: Role): boolean =>
      this.#options.unanswered({ kind: this.kind, role, name, form });
    return isLost || (names.has(name) && isUnanswered('names')) || (wildcard && isUnanswered('wildcard'));
  }

  /** Whether there is nothing of what is wanted by name. */
  absent(form: Parameters): boolean {
    const { world } = this.#options;
    const { names, wildcard } = this.wanted;
    if (wildcard) return false;
    return [...names].every((name) => world.matching(this.kind, name, form, world.revision).length === 0);
  }

  /** Of several variants that match one of its parameter sets, a client cannot tell which it was sent for that. */
  #wasAmbiguous(name: string, form: Parameters): boolean {
    const { world } = this.#options;
    const earlier = world.earlier(this.kind, name);
    return earlier.some(
      (variants) => variants.filter(({ constraints }) => matches(constraints.message, form)).length > 1,
    );
  }

  /** SotW cannot tell of deletions where absence means nothing. */
  #keepsDeleted(complete: boolean): boolean {
    return this.#options.protocol === 'sotw' && !complete;
  }
}

/** These of the floors. */
function lower<Key>(floors: Map<Key, number>, some: Iterable<readonly [Key, number]>, most: number): void {
  for (const [key, floor] of some) floors.set(key, Math.min(floor, most));
}
