import type { TypeUrl } from '../../model/brand.ts';
import { type Interest, type Removal, WILDCARD } from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import { Held, type HeldVariant } from './held.ts';
import type { SessionOptions, TypeState } from './machine.ts';
import type { Stamp } from './stamp.ts';
import { type Ask, awaken, Wants } from './wants.ts';

/** What a session says of the type of an interest, its wildcard or its names. */
export function createTypeState(
  { type, selector }: Interest,
  { holders, locators, maxConstraintDepth }: SessionOptions,
  stamp: Stamp,
): TypeState {
  return {
    type,
    info: typeInfo(type),
    holder: selector === WILDCARD ? holders.wildcard : holders.named,
    wants: new Wants(locators),
    held: new Held(),
    rules: { type, stamp, maxConstraintDepth },
    fresh: new Set(),
    dropped: [],
    asked: 0,
    nonce: '',
    version: '',
    rejection: undefined,
    rejections: 0,
    sweep: false,
  };
}

/** What is held under an ask's name or glob, or by the wildcard. */
export function covered({ held }: TypeState, { kind, selector }: Ask): HeldVariant[] {
  if (kind === 'name') return held.of(selector);
  return kind === 'glob' ? held.under(selector) : [...held.all()];
}

/** Removes what an ask covers and this stream has not confirmed. */
export function removeStale(state: TypeState, ask: Ask, stream: number, locators: boolean): Removal[] {
  const stale = covered(state, ask).filter(
    ({ mark, constraints }) => mark !== stream && (!locators || constraints.matches(ask.parameters)),
  );
  for (const held of stale) state.held.delete(held);
  return stale.map(({ name, constraints }) => ({ name, constraints }));
}

/** Something was asked that has no answer yet. */
export function awaitsAnswer(states: Iterable<TypeState>): boolean {
  const waits = ({ askedIn, answered }: Ask): boolean => askedIn > 0 && !answered;
  return [...states].some(({ wants }) => [...wants.all()].some(waits));
}

/** Nothing is wanted, held or to be taken back: only what the stream said last is in it. */
export function isAbandoned({ wants, held, dropped }: TypeState): boolean {
  return wants.size === 0 && held.size === 0 && dropped.length === 0;
}

/** A new stream: everything is asked anew, but for what rests. */
export function renewTypeState(state: TypeState): void {
  state.nonce = '';
  state.asked = 0;
  state.rejection = undefined;
  state.rejections = 0;
  state.dropped = [];
  state.sweep = false;
  for (const ask of state.wants.all()) {
    ask.askedIn = 0;
    ask.answered = false;
    ask.responded = false;
    ask.expected = new Set();
    if (!ask.rests) state.fresh.add(ask);
  }
}

/** No stream is open: what only has idle interests is not asked on the next one. */
export function restIdle({ wants, fresh }: TypeState, isIdle: (interest: Interest) => boolean): void {
  for (const ask of wants.all()) {
    ask.rests = ask.interests.values().every(isIdle);
    if (ask.rests) fresh.delete(ask);
  }
}

/** Somebody subscribes to it again. */
export function wake(state: TypeState | undefined, interest: Interest): void {
  const ask = state?.wants.covering(interest);
  if (state !== undefined && ask?.rests === true) awaken(state, ask);
}

/** What is wanted and not asked. */
export function resting(states: Iterable<TypeState>): readonly Interest[] {
  return Iterator.from(states)
    .flatMap(({ wants }) => wants.all())
    .filter(({ rests }) => rests)
    .flatMap(({ interests }) => interests.values())
    .toArray();
}

/** By type, in the order of ADS (protocol §8): a server that answers in the order of requests warms clusters first. */
export function inOrder<S extends TypeState>(states: ReadonlyMap<TypeUrl, S>): readonly S[] {
  return [...states.values()].toSorted((a, b) => a.info.order - b.info.order);
}
