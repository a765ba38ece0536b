import { identity, type Received } from './messages.ts';
import { Violation } from './violation.ts';
import { catalog, type Kind, type World } from './world.ts';

/**
 * Rule 5 for one type on one stream: everything in a response is new to the client, or something the client did asks
 * for it. What was asked for is allowed once. Kept at the server's end, where it is known what came before what.
 */
export class Causes {
  readonly #world: World;
  readonly #kind: Kind;
  /** What was sent on this stream, by (constraints, name), or said by the client to be there. */
  readonly #sent = new Map<string, string>();
  /** How often the client was told that a name is not there: once for each of its parameter sets. */
  readonly #gone = new Map<string, number>();
  readonly #forms: number;
  /** It has one variant of a name: another one takes its place. */
  readonly #replaces: boolean;
  /** Of several variants that match, the one that came last counts: any response may bring another one of them. */
  readonly #undecided: (name: string) => boolean;
  /** Names that must be told again, so often: each of its parameter sets is answered for itself. */
  readonly #asked = new Map<string, number>();
  /** After a NACK of several: each once more, alone. */
  readonly #alone = new Map<string, number>();
  /** The complete state that was sent last. */
  #whole: string | undefined;
  /** Digests that the client came with, until something is said about the name. */
  readonly #claimed = new Map<string, string>();
  #wholeAsked = true;
  /** Names that are asked for by other parameters than before, or by name where a wildcard showed them. */
  readonly #anew = new Set<string>();
  /**
   * Names of which a complete state has not said yet that they are there, and for how many of the client's parameter
   * sets: it may say once for each that they are not.
   */
  readonly #unsaid = new Map<string, number>();
  /** The wildcard's first answer is due, whatever is in it. */
  #emptyDue = true;
  /** Upstream's edits up to this revision have excused a repetition already. */
  #excused: number;

  readonly #turns: () => number;
  #excusedTurns: number;

  /** `isSotw`: nothing is removed by name. `turns`: how often something was done to the gate of the relay. */
  constructor(
    world: World,
    kind: Kind,
    isSotw: boolean,
    forms: number,
    undecided: (name: string) => boolean,
    turns: () => number,
  ) {
    this.#turns = turns;
    this.#excusedTurns = turns();
    this.#forms = forms;
    this.#replaces = isSotw && forms === 1;
    this.#undecided = undecided;
    this.#world = world;
    this.#kind = kind;
    this.#excused = 0;
  }

  /** initial_resource_versions: sent on an earlier stream. The digest in the version counts (protocol §4.1). */
  claimed(name: string, version: string): void {
    this.#claimed.set(name, digestOf(version));
  }

  asked(names: Iterable<string>): void {
    for (const name of names) {
      this.#asked.set(name, this.#forms);
      this.#unsaid.set(name, this.#forms);
    }
    this.#wholeAsked = true;
  }

  /** Asked for by name from now on, and perhaps known before. */
  named(names: Iterable<string>): void {
    for (const name of names) this.#anew.add(name);
  }

  wildcardAsked(): void {
    this.#emptyDue = true;
  }

  everythingAsked(): void {
    const { names } = catalog[this.#kind];
    this.wildcardAsked();
    this.asked(names);
    for (const name of names) this.#anew.add(name);
  }

  /** The client took the response back to itself: its good parts may come alone. */
  rejected(received: Received): void {
    if (received.resources.length + received.removed.length + received.removedVariants.length < 2) return;
    const again = (id: string, content: string, times = 1): void => {
      const key = JSON.stringify([id, content]);
      this.#alone.set(key, (this.#alone.get(key) ?? 0) + times);
    };
    // With each variant that takes its place for one of the parameter sets: any of these may be rejected again.
    const removedWith = (name: string): number =>
      Math.max(1, received.resources.filter((resource) => resource.name === name).length);
    for (const { name, constraints, content } of received.resources) {
      again(this.#idOf(constraints, name), content);
    }
    for (const name of received.removed) again(identity('', name), '', removedWith(name));
    for (const { name, constraints } of received.removedVariants)
      again(identity(constraints, name), '', removedWith(name));
  }

  /** A SotW response that holds everything. Returns what changed in it. */
  complete(received: Received, wants: (name: string) => boolean): string[] {
    const signature = received.resources
      .map(({ name, constraints, content }) => `${identity(constraints, name)}=${content}`)
      .toSorted()
      .join('\n');
    for (const [name, left] of this.#unsaid) {
      const shown = received.resources.filter((resource) => resource.name === name).length;
      this.#leave(name, Math.min(left, this.#forms - shown));
    }
    const news = signature !== this.#whole || this.#wholeAsked || received.errors.length > 0;
    if (!news && !this.#answersOne() && !this.#excusedByEdit(catalog[this.#kind].names.filter(wants))) {
      throw new Violation(5, 'the same complete state again');
    }
    this.#whole = signature;
    this.#wholeAsked = false;
    const changed = received.resources.filter(
      ({ name, constraints, content }) => this.#sent.get(identity(constraints, name)) !== content,
    );
    this.#sent.clear();
    for (const { name, constraints, content } of received.resources) {
      this.#sent.set(identity(constraints, name), content);
    }
    return changed.map(({ name }) => name);
  }

  /** A SotW or delta response that holds what changed; returns the names in it. `wildcard`: an empty first answer is due. */
  partial(received: Received, wildcard: boolean, named: (name: string) => boolean): string[] {
    const { resources, removed, removedVariants, errors } = received;
    const size = resources.length + removed.length + removedVariants.length + errors.length;
    if (size === 0) {
      if (!this.#emptyDue || !wildcard) throw new Violation(5, 'an empty response');
      this.#emptyDue = false;
    }
    const answered = new Set<string>();
    // Alone: with the removal of the variant that it replaces.
    const alone =
      new Set([...[...resources, ...removedVariants].map(({ name }) => name), ...removed]).size === 1;
    for (const { name, constraints, content, tag } of resources) {
      const id = this.#idOf(constraints, name);
      const had = this.#claimed.get(name) === digestOf(tag);
      this.#claimed.delete(name);
      // Under other constraints it is another variant, whatever its content.
      const sent = `${constraints} ${content} ${digestOf(tag)}`;
      if (had || this.#sent.get(id) === sent) this.#repeat(name, id, content, alone, answered);
      this.#sent.set(id, sent);
      this.#gone.delete(name);
    }
    for (const name of removed) this.#remove(name, '', alone, named, answered);
    for (const { name, constraints } of removedVariants) {
      this.#remove(name, constraints, alone, named, answered);
    }
    for (const name of answered) this.#answer(name);
    return resources.map(({ name }) => name);
  }

  #idOf(constraints: string, name: string): string {
    return identity(this.#replaces ? '' : constraints, name);
  }

  #answer(name: string): void {
    const left = (this.#asked.get(name) ?? 0) - 1;
    if (left > 0) this.#asked.set(name, left);
    else this.#asked.delete(name);
  }

  #repeat(name: string, id: string, content: string, alone: boolean, answered: Set<string>): void {
    if (alone && this.#take(id, content)) return;
    if (this.#asked.has(name)) answered.add(name);
    else if (!this.#undecided(name) && !this.#excusedByEdit([name])) {
      throw new Violation(5, `${name} is sent again without cause`);
    }
  }

  #remove(
    name: string,
    constraints: string,
    alone: boolean,
    named: (name: string) => boolean,
    answered: Set<string>,
  ): void {
    const id = identity(constraints, name);
    const had = this.#sent.delete(id) || this.#claimed.delete(name);
    const firstTime = constraints === '' && named(name) && (this.#gone.get(name) ?? 0) < this.#forms;
    const again = alone && this.#take(id, '');
    // What it had before is taken back first, if that waited: it is no answer to what it asks now.
    const before = had && this.#anew.delete(name);
    if (!again && !before && this.#asked.has(name)) answered.add(name);
    else if (!had && !firstTime && !again) {
      throw new Violation(5, `${name} is removed again, or was never there`);
    }
    this.#gone.set(name, (this.#gone.get(name) ?? 0) + 1);
  }

  /** Upstream's answer that there is nothing of a name shows only in that the state comes again. */
  #answersOne(): boolean {
    const [first] = this.#unsaid;
    if (first === undefined) return false;
    const [name, left] = first;
    this.#leave(name, left - 1);
    return true;
  }

  #leave(name: string, left: number): void {
    if (left > 0) this.#unsaid.set(name, left);
    else this.#unsaid.delete(name);
  }

  #take(id: string, content: string): boolean {
    const key = JSON.stringify([id, content]);
    const left = this.#alone.get(key) ?? 0;
    if (left > 0) this.#alone.set(key, left - 1);
    return left > 0;
  }

  /**
   * Upstream has said something about it since: what came of it looks the same, but it is an answer. Each edit that puts
   * the same content behind other constraints is one for itself (protocol §3.10). At a gate the same edit may be told,
   * taken back and told again.
   */
  #excusedByEdit(names: readonly string[]): boolean {
    const turns = this.#turns();
    if (turns > this.#excusedTurns && this.#world.lastEdit(this.#kind, names) > 0) {
      this.#excusedTurns = turns;
      return true;
    }
    const edited =
      this.#world.nextMove(this.#kind, names, this.#excused) ?? this.#world.lastEdit(this.#kind, names);
    if (edited <= this.#excused) return false;
    this.#excused = edited;
    return true;
  }
}

const digestOf = (version: string): string => version.slice(version.lastIndexOf('@') + 1);
