import type { Timer } from '../../model/clock.ts';
import type { Holding, ItemState, MissingEntry } from '../../model/subscription.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { WholeState } from '../../model/whole-state.ts';
import type { Account } from '../../wire/accounts.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { Peer } from '../../wire/server-stream.ts';
import { type Refusal, refusedUpstream, unavailable } from '../admission.ts';
import type { DownstreamServices, SessionShare } from '../services.ts';
import type { Poll } from './poll.ts';
import { type Ordered, outcomeOf, type Patience, type PollOutcome } from './poll-outcome.ts';

/** A poll that waits for what is unknown. */
interface HeldPoll {
  readonly poll: Poll;
  readonly patience: Patience;
  readonly ordered: Ordered | undefined;
  readonly answered: (outcome: PollOutcome) => void;
  readonly timer: Timer;
}

/** All polls of one type, selection and access: one subscription, that lasts from poll to poll (ADR 18). */
export class PollClass {
  readonly info: TypeInfo;
  readonly poll: Poll;
  /** By the clock. */
  polledAt: number;
  readonly #state: WholeState;
  #share: SessionShare | undefined;
  readonly #services: DownstreamServices;
  /** Whose it is alone; undefined: several peers' have polled it. */
  #account: Account | undefined;
  readonly #held = new Set<HeldPoll>();
  #closed = false;

  /** The connection of whoever polled first. */
  readonly #first: WeakRef<Peer>;

  /** `kept`: so many bytes more (or fewer) are kept of its response. */
  constructor(
    poll: Poll,
    peer: Peer,
    share: SessionShare | undefined,
    services: DownstreamServices,
    kept: (bytes: number) => void,
  ) {
    this.#first = new WeakRef(peer);
    this.info = poll.info;
    this.poll = poll;
    this.polledAt = services.clock.now();
    this.#share = share;
    this.#services = services;
    const { encoding, selection, client } = poll;
    this.#state = services.openState(poll.info.url, encoding, selection, client.access, {
      wake: () => this.#wake(),
      payer: peer.account,
      kept,
    });
    this.#account = peer.account;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get holds(): boolean {
    return this.#held.size > 0;
  }

  /** While it shows what has this version: what that is. */
  holdings(said: ItemState, version: string): Iterable<Holding> {
    return this.#closed ? [] : this.#state.holdings(said, version);
  }

  get missing(): readonly MissingEntry[] {
    return this.#closed ? [] : this.#state.missing;
  }

  takes({ info, selection, encoding, client }: Poll): boolean {
    const own = this.poll;
    return (
      own.info === info &&
      own.encoding === encoding &&
      own.client.access.key === client.access.key &&
      (own.selection === selection || own.selection.equals(selection))
    );
  }

  /** Answers at once, or later. The function returned gives the poll up. */
  ask(
    poll: Poll,
    peer: Peer,
    patience: Patience,
    ordered: Ordered | undefined,
    answered: (outcome: PollOutcome) => void,
  ): () => void {
    const { account } = peer;
    if (this.#first.deref() !== peer && account.excess === undefined) this.#state.keep();
    if (account !== this.#account && this.#account !== undefined) {
      this.#account = undefined;
      this.#state.share();
    }
    this.polledAt = this.#services.clock.now();
    const asked = { poll, patience, ordered };
    const outcome = this.#outcomeOf(asked, patience.milliseconds <= 0) ?? this.#refusal(this.#hopeless());
    if (outcome !== undefined) {
      answered(outcome);
      return nothing;
    }
    const held: HeldPoll = {
      ...asked,
      answered,
      timer: this.#services.clock.after(patience.milliseconds, () => this.#answer(held, true)),
    };
    this.#held.add(held);
    return () => this.#release(held);
  }

  /** Upstreams have gone down: nothing can become known for those that wait. */
  failIfHopeless(): void {
    if (this.#held.size === 0) return;
    const refusal = this.#hopeless();
    if (refusal !== undefined) this.refuseAll(refusal);
  }

  refuseAll({ reason, status }: Refusal): void {
    for (const held of [...this.#held]) {
      this.#release(held);
      this.#services.events.rejected(reason);
      held.answered({ kind: 'refused', status });
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#share?.release();
    // It holds the connection of whoever polled first.
    this.#share = undefined;
    this.#state.close();
  }

  #wake(): void {
    for (const held of [...this.#held]) this.#answer(held, false);
  }

  #answer(held: HeldPoll, timeIsUp: boolean): void {
    const outcome = this.#outcomeOf(held, timeIsUp);
    if (outcome === undefined) return;
    this.#release(held);
    held.answered(outcome);
  }

  #outcomeOf(
    { poll, patience, ordered }: Omit<HeldPoll, 'answered' | 'timer'>,
    timeIsUp: boolean,
  ): PollOutcome | undefined {
    const outcome = outcomeOf(this.#state, poll, patience, timeIsUp, ordered);
    if (outcome?.kind === 'refused') this.#services.events.rejected('unknown');
    if (outcome?.kind !== 'response' || poll.client.exempt) return outcome;
    const { length } = outcome.response.bytes;
    const { maxResponseBytes = length } = this.#services.limits();
    if (length <= maxResponseBytes) return outcome;
    const message = `a response of ${this.info.short} has ${length} bytes: at most ${maxResponseBytes} are sent (limits.max_response_bytes)`;
    const status = { code: Code.RESOURCE_EXHAUSTED, message };
    return this.#refusal({ reason: 'response_bytes', status });
  }

  #release(held: HeldPoll): void {
    held.timer.cancel();
    this.#held.delete(held);
  }

  #hopeless(): Refusal | undefined {
    const { info } = this;
    const { selection, allUnknown } = this.#state;
    const types = [{ info, selection, subscription: { responded: false, allUnknown } }];
    return unavailable(types, this.#services) ?? refusedUpstream(types, this.#services);
  }

  #refusal(refusal: Refusal | undefined): PollOutcome | undefined {
    if (refusal === undefined) return undefined;
    this.#services.events.rejected(refusal.reason);
    return { kind: 'refused', status: refusal.status };
  }
}

function nothing(): void {}
