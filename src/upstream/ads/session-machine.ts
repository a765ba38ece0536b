import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import { assertNever, type Result } from '../../model/result.ts';
import {
  type Interest,
  type Move,
  type Removal,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { IncomingSotw, UnreadableResponse } from '../../wire/response-reader.ts';
import { Code } from '../../wire/status.ts';
import { unaskedType } from './arrivals.ts';
import type { VariantKey } from './held.ts';
import type { Effect, Input, Machine, SessionOptions, TypeState } from './machine.ts';
import { originalOf, type Stamp } from './stamp.ts';
import {
  awaitsAnswer,
  covered,
  createTypeState,
  inOrder,
  isAbandoned,
  removeStale,
  renewTypeState,
  restIdle,
  resting,
  wake,
} from './type-state.ts';
import { TypesInUse } from './types-in-use.ts';
import { type Ask, askAgain, awaken, settle } from './wants.ts';

/** Others split a wildcard's first answer: it is whole when nothing more has come for so long (protocol §5b). */
const quietMs = 300;
const enoughMs = 3000;
/** Of resource_timeout: so much longer is waited for a relay above, which waits as long for its own control plane. */
const graceShare = 15;
/** The second rejection in a row waits so long, each further one twice as long: some servers send again at once. */
const nackDelayMs = { first: 1000, longest: 30_000 };
const reasonLimit = 2000;

/**
 * One stream to a control plane, as a machine without I/O and clock: inputs in, effects out. This is what SotW and
 * delta have in common; protocol §5b, and §3 and §4 seen from the client.
 */
export abstract class SessionMachine<S extends TypeState, R extends IncomingSotw> implements Machine {
  protected readonly options: SessionOptions;
  /** Grows with each stream: what is held bears the mark of the stream that last confirmed it. */
  protected stream = 0;
  /** Some response has come on this stream, or on the other one of its session: silence says something now. */
  protected heard = false;
  readonly #types = new TypesInUse<S>();
  readonly #timers = new Map<string, () => void>();
  /** Types of this stream that were sent but never asked for. */
  readonly #unsolicited = new Set<string>();
  #connected = false;
  #effects: Effect[] = [];
  #stamp: Stamp;

  constructor(options: SessionOptions) {
    this.options = options;
    this.#stamp = options.stamp;
  }

  protected abstract createState(base: TypeState): S;
  protected abstract read(bytes: Buffer): Result<R, UnreadableResponse>;
  /** A new stream: everything is asked anew. */
  protected abstract reset(state: S, resumed: boolean): void;
  /** Sends what `fresh` and `dropped` say. */
  protected abstract change(state: S, fresh: readonly Ask[], dropped: readonly Ask[]): void;
  /** Judges a response; changes nothing unless it is good. The error is the reason for a NACK. */
  protected abstract accept(state: S, response: R): Result<Transaction>;
  /** An ACK, or with `rejection` a NACK, of `state.nonce`. */
  protected abstract reply(state: S): OutgoingRequest;
  /** Refuses a type that was never asked for; undefined where a refusal would subscribe to it. */
  protected abstract refuse(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest | undefined;
  /** What was sent, and would be sent again in answer to a wildcard or glob that is asked now. */
  protected abstract expect(state: S, ask: Ask): Set<VariantKey>;
  /** Whether a response may be the answer to a wildcard or glob, rather than one to something else. */
  protected abstract answers(state: S, ask: Ask, said: Transaction): boolean;
  /** Whether silence means absence in the end (protocol §3.9). */
  protected abstract expires(state: S, ask: Ask): boolean;
  /** Whether the first response of all may come just now, with answers to much else. */
  protected abstract hesitates(state: S, asks: readonly Ask[]): boolean;
  /** What is held of an ask that was not answered in time; the ask is settled unless it returns undefined. */
  protected abstract expired(state: S, ask: Ask): Removal[] | undefined;
  /** What is held for an answered ask, and this stream has not confirmed in all the time. */
  protected leftover(_state: S, _ask: Ask): Removal[] {
    return [];
  }
  /** Something of what is held is dropped, as nobody wants it any more: what this ask covers. */
  protected abstract forgotten(state: S, ask?: Ask): void;

  get idle(): boolean {
    return this.#types.values().every(({ wants }) => wants.all().every(({ rests }) => rests));
  }

  /** Whether something was asked that has no answer yet. */
  get awaits(): boolean {
    return awaitsAnswer(this.#types.values());
  }

  resting(): readonly Interest[] {
    return resting(this.#types.values());
  }

  *interests(): Iterable<Interest> {
    for (const { wants } of this.#types.values()) {
      for (const ask of wants.all()) yield* ask.interests.values();
    }
  }

  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    const before = this.#stamp;
    this.#stamp = stamp ?? before;
    for (const state of this.#types.values()) {
      const { type, holder } = state;
      const anew = (constraints: Constraints): Constraints | undefined => {
        const stamped = stamp?.(originalOf(before, constraints));
        return stamped?.ok === true ? stamped.value : undefined;
      };
      for (const move of state.held.restamp(anew)) yield [type, { holder, ...move }];
      state.rules = { ...state.rules, stamp: this.#stamp };
      this.forgotten(state);
    }
  }

  step(input: Input): readonly Effect[] {
    this.#effects = [];
    switch (input.kind) {
      case 'connected':
        this.#connect(input.resumed);
        break;
      case 'disconnected':
        this.#connected = false;
        this.#timers.clear();
        break;
      case 'received':
        if (this.#connected) this.#receive(input.bytes);
        break;
      case 'heard':
        this.heard = true;
        break;
      case 'subscribe':
        this.#subscribe(input.interest);
        break;
      case 'unsubscribe':
        this.#unsubscribe(input.interest);
        break;
      case 'rest':
        for (const state of this.#types.values()) restIdle(state, input.isIdle);
        break;
      case 'wake':
        wake(this.#types.get(input.interest.type), input.interest);
        break;
      case 'flush':
        this.#flush();
        break;
      case 'fired': {
        const run = this.#timers.get(input.timer);
        this.#timers.delete(input.timer);
        run?.();
        break;
      }
      default:
        assertNever(input);
    }
    return this.#effects;
  }

  protected send(request: OutgoingRequest): void {
    this.#effects.push({ kind: 'send', request });
  }

  protected arm(timer: string, milliseconds: number, run: () => void): void {
    this.#timers.set(timer, run);
    this.#effects.push({ kind: 'arm', timer, milliseconds });
  }

  protected renew(reason: string): void {
    this.#effects.push({ kind: 'renew', reason });
  }

  #fail(reason: string): void {
    this.#effects.push({ kind: 'fail', reason });
  }

  #apply(applied: Transaction): void {
    this.#effects.push({ kind: 'apply', transaction: applied });
  }

  #say(state: TypeState, part: Partial<Transaction>): void {
    const { holder, type, version } = state;
    this.#apply(transaction({ holder, type, version, ...part }));
  }

  #connect(resumed: boolean): void {
    this.#connected = true;
    this.heard = false;
    this.stream++;
    this.#unsolicited.clear();
    this.#timers.clear();
    for (const state of this.#types.values()) this.#renew(state, resumed);
    this.#flush();
  }

  #renew(state: S, resumed: boolean): void {
    renewTypeState(state);
    this.reset(state, resumed);
  }

  release(type: TypeUrl): TypeState | undefined {
    const state = this.#types.get(type);
    this.#types.delete(type);
    return state;
  }

  adopt(base: TypeState, resumed: boolean): void {
    const state = this.createState(base);
    for (const held of state.held.all()) held.mark = 0; // of no stream of this machine
    this.#types.set(state.type, state);
    this.#renew(state, resumed);
  }

  #subscribe(interest: Interest): void {
    const state = this.#state(interest);
    const { ask, created, again } = state.wants.add(interest);
    if (created) state.fresh.add(ask);
    else if (ask.rests) awaken(state, ask);
    if (created) return;
    if (again) askAgain(state, ask);
    else if (ask.known) this.#say(state, { settled: [interest] });
  }

  #unsubscribe(interest: Interest): void {
    const state = this.#types.get(interest.type);
    const ask = state?.wants.delete(interest);
    if (state === undefined || ask === undefined) return;
    state.fresh.delete(ask);
    if (ask.askedIn > 0) state.dropped.push(ask);
    this.#forget(state, ask);
  }

  /** Nobody keeps it current any more, so the store must not have it from here. */
  #forget(state: S, ask: Ask): void {
    this.forgotten(state, ask);
    if (state.wants.size === 0) {
      if (state.held.size > 0) this.#say(state, { complete: true, unwanted: true });
      state.held.clear();
      return;
    }
    const removals: Removal[] = [];
    for (const held of covered(state, ask)) {
      if (state.wants.selecting(held.name, [], held.constraints).length > 0) continue;
      state.held.delete(held);
      removals.push({ name: held.name, constraints: held.constraints });
    }
    if (removals.length > 0) this.#say(state, { removals, unwanted: true });
  }

  #state(interest: Interest): S {
    const { type } = interest;
    const known = this.#types.get(type);
    if (known !== undefined) return known;
    const created = this.createState(createTypeState(interest, this.options, this.#stamp));
    this.#types.set(type, created);
    return created;
  }

  #flush(): void {
    if (!this.#connected) return;
    for (const state of inOrder(this.#types)) {
      if (state.fresh.size === 0 && state.dropped.length === 0) continue;
      const fresh = [...state.fresh];
      const dropped = state.dropped;
      state.fresh.clear();
      state.dropped = [];
      const request = ++state.asked;
      if (fresh.some(({ tried }) => !tried)) this.#effects.push({ kind: 'asked', type: state.type });
      for (const ask of fresh) {
        ask.tried = true;
        ask.askedIn = request;
        if (request > 1 && ask.kind !== 'name') ask.expected = this.expect(state, ask);
      }
      this.change(state, fresh, dropped);
      const wildcards = fresh.filter((ask) => !ask.answered && ask.kind === 'wildcard');
      if (wildcards.length > 0) this.#awaitWildcards(state, `overdue ${request} ${state.type}`, wildcards);
      const expiring = fresh.filter((ask) => !ask.answered && this.expires(state, ask));
      if (expiring.length > 0) this.#awaitExpiry(state, `expire ${request} ${state.type}`, expiring);
    }
    // What comes of them on this stream from now on was never asked for.
    this.#types.forget(isAbandoned);
  }

  #awaitWildcards(state: S, timer: string, asks: readonly Ask[]): void {
    this.arm(timer, this.options.resourceTimeoutMs, () => {
      const waiting = asks.filter((ask) => !ask.answered && state.wants.has(ask));
      if (waiting.length === 0) return;
      // Asked for later, and its answer cannot be told from others, or there is none: a new stream begins with one.
      const later = state.nonce !== '' && waiting.some((ask) => ask.askedIn > 1);
      const reason = `no answer to the wildcard of ${state.type} within ${this.options.resourceTimeoutMs / 1000} s`;
      if (later) return this.renew(reason);
      this.#effects.push({ kind: 'overdue' });
      this.#awaitWildcards(state, timer, waiting);
    });
  }

  #awaitExpiry(state: S, timer: string, asks: readonly Ask[], again = false): void {
    const { resourceTimeoutMs } = this.options;
    this.arm(timer, again ? resourceTimeoutMs / graceShare : resourceTimeoutMs, () => {
      // What was refused may have been the answer: nothing is known of it yet.
      if (state.rejection !== undefined) this.#awaitExpiry(state, timer, asks);
      else if (again || !this.hesitates(state, asks)) this.#expire(state, asks);
      else this.#awaitExpiry(state, timer, asks, true);
    });
  }

  #expire(state: S, asks: readonly Ask[]): void {
    const settled: Interest[] = [];
    const removals: Removal[] = [];
    for (const ask of asks) {
      if (!state.wants.has(ask)) continue;
      if (ask.answered) {
        removals.push(...this.leftover(state, ask));
        continue;
      }
      const gone = this.expired(state, ask);
      if (gone === undefined) continue;
      removals.push(...gone);
      settle(state.wants, ask, settled);
    }
    if (settled.length > 0 || removals.length > 0) this.#say(state, { settled, removals });
  }

  #receive(bytes: Buffer): void {
    const read = this.read(bytes);
    const envelope = read.ok ? read.value : read.error;
    const state = this.#types.get(typeUrl(envelope.typeUrl));
    if (state === undefined || state.asked === 0) {
      if (!read.ok) this.#fail(read.error.reason);
      else if (envelope.typeUrl === '') this.#fail('a response without type_url');
      else this.#unasked(read.value);
      return;
    }
    if (!read.ok) {
      // Without a nonce there is nothing to refuse: the stream may as well be out of step.
      if (read.error.nonce === '') this.#fail(read.error.reason);
      else this.#reject(state, read.error.nonce, read.error.reason);
      return;
    }
    this.heard = true;
    if (state.wants.size === 0) {
      // An answer that was in flight when its last subscription ended.
      state.nonce = envelope.nonce;
      this.send(this.reply(state));
      return;
    }
    const accepted = this.accept(state, read.value);
    if (!accepted.ok) {
      this.#reject(state, envelope.nonce, accepted.error);
      return;
    }
    this.#apply(accepted.value);
    this.#acknowledge(state, read.value);
    if (this.options.exact === true) this.#settleWildcards(state, accepted.value);
    this.#awaitQuiet(state, accepted.value);
  }

  #acknowledge(state: S, response: R): void {
    const { type } = state;
    if (state.rejection !== undefined) {
      this.#cancel(`nack ${type}`);
      this.#effects.push({ kind: 'log', level: 'info', message: 'responses are accepted again', type });
    }
    state.nonce = response.nonce;
    state.version = response.version;
    state.rejection = undefined;
    state.rejections = 0;
    this.#effects.push({ kind: 'count', type, result: 'accepted' });
    this.send(this.reply(state));
  }

  #reject(state: S, nonce: string, reason: string): void {
    const { type } = state;
    const message = reason.slice(0, reasonLimit);
    if (state.rejection?.message !== message) {
      this.#effects.push({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type });
    }
    state.nonce = nonce;
    state.rejection = { code: Code.INVALID_ARGUMENT, message };
    state.rejections++;
    this.#effects.push({ kind: 'count', type, result: 'rejected' });
    if (state.rejections === 1) {
      this.send(this.reply(state));
      return;
    }
    const delay = Math.min(nackDelayMs.first * 2 ** (state.rejections - 2), nackDelayMs.longest);
    this.arm(`nack ${type}`, delay, () => this.send(this.reply(state)));
  }

  #unasked(response: R): void {
    const { type, known, message } = unaskedType(response.typeUrl);
    this.#effects.push({ kind: 'count', type: known, result: 'rejected' });
    if (this.#unsolicited.has(known) || this.#unsolicited.size >= 100) return;
    this.#unsolicited.add(known);
    this.#effects.push({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type: known });
    const refusal = this.refuse(type, response.nonce, { code: Code.INVALID_ARGUMENT, message });
    if (refusal !== undefined) this.send(refusal);
  }

  #settleWildcards(state: S, said: Transaction): void {
    const settled: Interest[] = [];
    for (const ask of [...state.wants.unknown]) {
      if (ask.kind === 'wildcard' && ask.askedIn > 0 && this.answers(state, ask, said)) {
        settle(state.wants, ask, settled);
      }
    }
    if (settled.length > 0) this.#say(state, { settled });
  }

  #awaitQuiet(state: S, said: Transaction): void {
    let due = state.sweep;
    for (const ask of state.sweep ? state.wants.all() : state.wants.unknown) {
      if (ask.kind === 'name' || ask.askedIn === 0) continue;
      if (!ask.responded && !this.answers(state, ask, said)) continue;
      ask.responded = true;
      due = true;
    }
    if (!due) return;
    const { type } = state;
    this.arm(`quiet ${type}`, quietMs, () => this.#quiet(state));
    // A busy control plane is never quiet.
    if (!this.#timers.has(`enough ${type}`)) {
      this.arm(`enough ${type}`, enoughMs, () => this.#quiet(state));
    }
  }

  #quiet(state: S): void {
    this.#cancel(`quiet ${state.type}`);
    this.#cancel(`enough ${state.type}`);
    // A part of the answer was refused: it is not known yet.
    if (state.rejection !== undefined) return;
    const settled: Interest[] = [];
    for (const ask of [...state.wants.unknown]) if (ask.responded) settle(state.wants, ask, settled);
    const removals: Removal[] = [];
    if (state.sweep) {
      state.sweep = false;
      for (const ask of state.wants.all()) {
        if (ask.kind === 'name') continue;
        if (!ask.responded) {
          state.sweep = true; // its own answer is still to come
          continue;
        }
        removals.push(...this.sweep(state, ask));
      }
    }
    if (settled.length > 0 || removals.length > 0) this.#say(state, { settled, removals });
  }

  /** Removes what an ask covers and this stream has not confirmed. */
  protected sweep(state: S, ask: Ask): Removal[] {
    return removeStale(state, ask, this.stream, this.options.locators);
  }

  #cancel(timer: string): void {
    if (this.#timers.delete(timer)) this.#effects.push({ kind: 'cancel', timer });
  }
}
