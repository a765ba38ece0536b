import type { Timer } from '../../model/clock.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import type { Selection } from '../../model/selection.ts';
import {
  type Encoding,
  encoding,
  type Holding,
  type ItemState,
  type MissingEntry,
  type Response,
} from '../../model/subscription.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { WholeState } from '../../model/whole-state.ts';
import type { Account } from '../../wire/accounts.ts';
import { Code, type GrpcStatus } from '../../wire/grpc-status.ts';
import { type ErrorDetail, readSotwRequest, sotwSelectors } from '../../wire/requests.ts';
import type { Peer } from '../../wire/server-stream.ts';
import {
  deniesAll,
  excessOf,
  excessOfNames,
  malformed,
  type Refusal,
  refusedUpstream,
  unavailable,
} from '../admission.ts';
import { selectState } from '../selecting.ts';
import type { ClientContext, DownstreamServices, SessionShare } from '../services.ts';
import { SotwNames } from '../steps.ts';

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

/** What one message of a client asks for, by the rules in force when it was read. */
export interface Poll {
  readonly info: TypeInfo;
  readonly client: ClientContext;
  readonly selection: Selection;
  readonly encoding: Encoding;
  /** What the client has; empty: nothing. */
  readonly version: string;
  /** Why it has rejected that. */
  readonly error: ErrorDetail | undefined;
}

/** What is kept of a poll after its answer, roughly. */
export const keptBytes = ({ selection }: Pick<Poll, 'selection'>): number => 1024 + 128 * selection.size;

/** Reads a DiscoveryRequest that stands for itself: it must carry the node, and the path says the type (§7.1). */
export function readPoll(
  info: TypeInfo,
  bytes: Buffer,
  peer: Peer,
  contentVersions: boolean,
  services: DownstreamServices,
): Result<Poll, Refusal> {
  const read = readSotwRequest(bytes);
  if (!read.ok) return invalid('malformed', read.error);
  const { typeUrl, node, selectors, version, error } = read.value;
  if (typeUrl !== '' && typeUrl !== info.url) {
    return invalid('type', `type_url ${JSON.stringify(typeUrl)} where ${info.url} is served`);
  }
  if (node === undefined) return invalid('no_node', 'the request must carry node');
  const context = services.context(node, peer);
  if (!context.ok) return fail({ reason: 'node', status: context.error });
  const client = context.value;
  const denied = client.access.deniesEverything(info.url);
  if (denied) return forbidden(`this client may not subscribe to ${info.url}`);
  const limits = client.exempt ? undefined : services.limits();
  const names = limits && excessOfNames(selectors, sotwSelectors, limits);
  if (names !== undefined) return exhausted(names);
  // As the first SotW request of a stream (§3.6): each poll stands for itself.
  const selection = selectState(selectors, info.url, client, services, new SotwNames());
  if (!selection.ok) return invalid('malformed', selection.error);
  if (deniesAll(client, info.url, selection.value)) {
    return forbidden(`this client may not subscribe to any of the ${info.short} resources that it names`);
  }
  const excess = limits && excessOf({ url: info.url, selection: selection.value }, [], limits);
  if (excess !== undefined) return exhausted(excess);
  return ok({
    info,
    client,
    selection: selection.value,
    encoding: encodingOf(client, contentVersions, services),
    version,
    error,
  });
}

function encodingOf(client: ClientContext, contentVersions: boolean, services: DownstreamServices): Encoding {
  const { wrapped, ttl } = client;
  return encoding({
    protocol: 'sotw',
    wrapped,
    ttl,
    constrained: services.constrained(),
    contentVersions,
    unknownNames: false,
    absencesUnsaid: false,
  });
}

const invalid = (reason: string, message: string) => fail({ reason, status: malformed(message) });

const forbidden = (message: string) =>
  fail({ reason: 'denied', status: { code: Code.PERMISSION_DENIED, message } });

const exhausted = (message: string) =>
  fail({ reason: 'subscriptions', status: { code: Code.RESOURCE_EXHAUSTED, message } });

/** What a poll is answered with. */
export type PollOutcome =
  /** `version`: of what it shows. */
  | { readonly kind: 'response'; readonly response: Response; readonly version: string }
  /** The client has this version. */
  | { readonly kind: 'unchanged'; readonly version: string }
  | { readonly kind: 'refused'; readonly status: GrpcStatus };

/** How long a poll waits for what is unknown, and what it is told then. */
export interface Patience {
  readonly milliseconds: number;
  /** The client takes 304 for an answer. If not, it is sent everything each time. */
  readonly unchanged: boolean;
  /** Nothing is known at the end: the client asks again (REFUSED), or is sent what is known, nothing (EMPTY). */
  readonly whenUnknown: 'REFUSED' | 'EMPTY';
}

/** What the other types that a client polls make of the answer to a poll (protocol §8). */
export interface Ordered {
  /** The client has this version: that of all that is visible. */
  hasAll(poll: Poll): void;
  /** What it is answered with if not with all that is visible, which has this version. */
  next(poll: Poll, version: string): Response | 'UNCHANGED' | undefined;
}

type State = Omit<WholeState, 'close' | 'selection'>;

/** Undefined: more may be known before the time is up (protocol §7.4). */
function outcomeOf(
  state: State,
  poll: Poll,
  { unchanged, whenUnknown }: Patience,
  timeIsUp: boolean,
  ordered?: Ordered,
): PollOutcome | undefined {
  if (!state.resolved && !timeIsUp) return undefined;
  const { version } = state;
  const { version: clientVersion } = poll;
  if (unchanged && clientVersion === version) {
    ordered?.hasAll(poll);
    return { kind: 'unchanged', version };
  }
  if (state.resolved || isAnswerable(state, clientVersion, whenUnknown)) {
    const next = ordered?.next(poll, version);
    if (next === 'UNCHANGED') return { kind: 'unchanged', version: clientVersion };
    return { kind: 'response', response: next ?? state.take(), version };
  }
  const message =
    'no control plane has answered yet for what this request names, and a response without it would delete it: ask again';
  return { kind: 'refused', status: { code: Code.UNAVAILABLE, message } };
}

/** Unknown is not absent (§3.9): an answer that lacks what is unknown must not delete it. */
function isAnswerable(state: State, clientVersion: string, whenUnknown: Patience['whenUnknown']): boolean {
  if (state.complete) return state.collectionsResolved && !state.allUnknown && clientVersion === '';
  return !state.allUnknown || whenUnknown === 'EMPTY';
}
