import type { TypeUrl } from '../../model/brand.ts';
import type { Parameters } from '../../model/parameters.ts';
import { type Interest, type Move, WILDCARD } from '../../model/transaction.ts';
import type { Link } from './dial.ts';
import type { Lane } from './lane.ts';
import type { Stamp } from './stamp.ts';

type Role = 'wildcard' | 'named';

/** What the rules make of a parameter set: the encoded node, and the stamp of what arrives. */
export interface Shown {
  readonly node: Uint8Array;
  readonly stamp: Stamp;
}

/** `answered`: to be called with each response. */
type MakeLane = (shown: Shown, answered: () => void) => Lane;

/**
 * The conversation with a control plane for one parameter set: at most two streams. A type's wildcard and its names
 * never share one, since an answer in flight would make `{"*", names}` look complete, and what is only named would
 * leak into the wildcard. Whichever comes second for a type takes the second stream; everything else is on the first,
 * so that the upstream's order across types is kept (protocol §5b). A role never moves: late answers would follow it.
 */
export class Session {
  readonly parameters: Parameters;
  #shown: Shown;
  readonly #lane: MakeLane;
  readonly #lanes = new Map<0 | 1, Lane>();
  readonly #roles = new Map<TypeUrl, Map<Role, 0 | 1>>();
  #up: { readonly link: Link; readonly endpoint: number } | undefined;
  #interests = 0;
  /** Those that only linger. */
  readonly #idle = new Set<Interest>();

  constructor(parameters: Parameters, shown: Shown, lane: MakeLane) {
    this.parameters = parameters;
    this.#shown = shown;
    this.#lane = lane;
  }

  /** Nothing is subscribed. */
  get empty(): boolean {
    return this.#interests === 0;
  }

  /** What is subscribed only lingers. */
  get idle(): boolean {
    return this.#interests > 0 && this.#idle.size === this.#interests;
  }

  get awaits(): boolean {
    return [...this.#lanes.values()].some((lane) => lane.awaits);
  }

  subscribe(interest: Interest): void {
    this.#interests++;
    this.#for(interest).subscribe(interest);
  }

  /** What is subscribed is asked for once more. */
  again(interest: Interest): void {
    this.#for(interest).subscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#interests--;
    this.#idle.delete(interest);
    this.#for(interest).unsubscribe(interest);
  }

  /** From now on it only lingers. */
  rest(interest: Interest): void {
    this.#idle.add(interest);
  }

  /** Somebody subscribes to it again. */
  wake(interest: Interest): void {
    this.#idle.delete(interest);
  }

  up(link: Link, endpoint: number): void {
    this.#up = { link, endpoint };
    for (const lane of this.#lanes.values()) lane.up(link, endpoint);
  }

  down(): void {
    this.#up = undefined;
    for (const lane of this.#lanes.values()) lane.down();
  }

  stop(): void {
    for (const lane of this.#lanes.values()) lane.stop();
  }

  *interests(): Iterable<Interest> {
    for (const lane of this.#lanes.values()) yield* lane.interests();
  }

  /** Another stamp, or (undefined) the end of this session: what becomes of all that it has brought. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    if (stamp !== undefined) this.#shown = { ...this.#shown, stamp };
    for (const lane of this.#lanes.values()) yield* lane.restamp(stamp);
  }

  /** Another node: the conversation begins anew if it is one, and what it had is compared. */
  show(node: Uint8Array): void {
    this.#shown = { ...this.#shown, node };
    for (const lane of this.#lanes.values()) lane.show(node);
  }

  reannounce(): void {
    for (const lane of this.#lanes.values()) lane.reannounce();
  }

  #for({ type, selector }: Interest): Lane {
    const roles = this.#roles.get(type) ?? new Map<Role, 0 | 1>();
    this.#roles.set(type, roles);
    const role: Role = selector === WILDCARD ? 'wildcard' : 'named';
    const index = roles.get(role) ?? (roles.size === 0 ? 0 : 1);
    roles.set(role, index);
    const known = this.#lanes.get(index);
    if (known !== undefined) return known;
    const lane = this.#lane(this.#shown, () => this.#answered(index));
    this.#lanes.set(index, lane);
    if (this.#up !== undefined) lane.up(this.#up.link, this.#up.endpoint);
    return lane;
  }

  #answered(index: 0 | 1): void {
    this.#lanes.get(index === 0 ? 1 : 0)?.heard();
  }
}
