import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { MapInUse } from '../../model/maps.ts';
import type { Result } from '../../model/result.ts';
import { atOnce, type InTurns } from '../../model/time-slices.ts';
import { type Interest, type Move, roleOf, type Transaction } from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import { type IncomingResponse, readResponse } from '../../wire/response-reader.ts';
import { DeltaType, deltaRefusal } from './delta-type.ts';
import { type AcceptanceRules, unsolicitedType } from './response-parts.ts';
import { SotwType } from './sotw-type.ts';
import type { Stamp } from './stamp.ts';
import { type Awaited, type MachineOptions, mostAwaited, StreamEffects } from './stream-effects.ts';
import { type KeptType, newType, type SubscribedType } from './subscribed-type.ts';

/** So many types that were never subscribed are refused on one stream; others are ignored. */
const maxUnsolicited = 100;
/** With so many types, those that are not used any more are forgotten. */
const manyTypes = 256;
/** So much of resource_timeout runs between new streams for wildcards that come back: names have had theirs. */
const renewalShare = 4 / 3;
/** Where silence says nothing, what comes back opens a new stream so often at most. */
const soonestRenewalMs = 2000;

/**
 * One stream to a control plane, as a machine without I/O and clock: what happens to it are its methods, and `ready` says
 * what is to be done. Each type on it is a machine of its own, `DeltaType` or `SotwType` (protocol §5b).
 */
export class StreamMachine extends StreamEffects {
  readonly #types = new MapInUse<TypeUrl, SubscribedType>(manyTypes);
  /** Types that came on this stream and were never subscribed. */
  readonly #unsolicited = new Set<TypeUrl>();
  #connected = false;
  /** For a wildcard that came back. The next one that does so waits, until the new stream has had time to say what is absent. */
  #renewedLately = false;
  /** A response of which a part is still to be read, and by which rules. */
  #reading:
    | {
        readonly of: SubscribedType;
        readonly response: IncomingResponse;
        readonly rules: AcceptanceRules;
        readonly turns: InTurns<Result<() => Transaction>>;
      }
    | undefined;
  #stamp: Stamp;

  constructor(options: MachineOptions) {
    super(options);
    this.#stamp = options.stamp;
  }

  get #isSotw(): boolean {
    return this.options.protocol === 'SOTW';
  }

  /** Nothing is subscribed. */
  get isUnused(): boolean {
    return this.#types.values().every(({ subscriptions }) => subscriptions.empty);
  }

  /** What was asked and has no answer yet. */
  get awaits(): Awaited {
    return mostAwaited(this.#types.values().flatMap((type) => type.awaited()));
  }

  /** Of the last responses, which are kept to compare the next ones with. */
  get keptBytes(): number {
    return this.#types.values().reduce((sum, type) => sum + type.keptBytes, 0);
  }

  /** Nothing may be subscribed or unsubscribed while they are read. */
  get interests(): IteratorObject<Interest, undefined> {
    return this.#types
      .values()
      .flatMap(({ subscriptions }) => subscriptions.all)
      .flatMap(({ interests }) => interests.values());
  }

  /** Another stamp from now on; undefined: the session ends. Returns what changes for the resources that it delivered. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    this.#stamp = stamp ?? this.#stamp;
    for (const type of this.#types.values()) yield* type.restamp(stamp);
  }

  /** Gives up a type, which moves to another stream as it is. */
  release(type: TypeUrl): SubscribedType | undefined {
    const released = this.#types.get(type);
    this.#types.delete(type);
    return released;
  }

  /** Takes over a type from another stream. It is subscribed with the next flush. `resumed`: as in `connect`. */
  adopt(type: SubscribedType, resumed: boolean): void {
    this.#begin(type, resumed);
  }

  #begin(type: KeptType, resumed: boolean): SubscribedType {
    const begun = this.#isSotw ? new SotwType(this, type) : new DeltaType(this, type, resumed);
    this.#types.set(type.type, begun);
    return begun;
  }

  /** A stream is open. `resumed`: to the same endpoint as the last one of this session. */
  connect(resumed: boolean): void {
    this.#connected = true;
    this.startOver();
    this.#unsolicited.clear();
    for (const type of [...this.#types.values()]) this.#begin(type, resumed);
    const { resourceTimeoutMs } = this.options;
    if (this.#renewedLately) {
      const again = (): void => {
        this.#renewedLately = false;
        this.flush();
      };
      if (resourceTimeoutMs === undefined) this.arm('renewed', soonestRenewalMs, again);
      else this.armInSilence('renewed', resourceTimeoutMs * renewalShare, again);
    }
    this.flush();
  }

  disconnect(): void {
    this.#connected = false;
    this.#reading = undefined;
    this.forgetTimers();
  }

  override fire(timer: string): void {
    this.#readToEnd(); // silence is over
    super.fire(timer);
  }

  subscribe(interest: Interest): void {
    const known = this.#types.get(interest.type);
    if (known?.holder.role === roleOf(interest)) {
      known.subscribe(interest);
      return;
    }
    // Among many invented types, Quarantine has forgotten that this stream had the type's names, or its wildcard.
    if (known !== undefined) {
      if (this.#connected) known.flush();
      this.hasForgotten = true;
    }
    this.#begin(newType(interest, this.options, this.#stamp), false).subscribe(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#types.get(interest.type)?.unsubscribe(interest);
  }

  /**
   * Changes of subscription are sent now, by type, in the order of ADS (protocol §8): a server that answers in the order of
   * requests warms clusters first.
   */
  flush(): void {
    if (!this.#connected) return;
    const types = [...this.#types.values()].toSorted((a, b) => a.info.order - b.info.order);
    const returned = this.#renewedLately ? undefined : types.find((type) => type.needsNewStream(false));
    if (returned !== undefined) {
      this.#renewedLately = true;
      const reason = `the wildcard of ${returned.type} comes back: only a new stream gets all of it for certain`;
      this.add({ kind: 'renew', reason });
      return;
    }
    for (const type of types) type.flush();
    // Responses of these types are unsolicited from now on.
    if (this.#types.dropUnused(({ isAbandoned }) => isAbandoned)) this.hasForgotten = true;
  }

  /** True: the response is large, others get a turn, and then comes `readOn`. */
  receive(bytes: Buffer): boolean {
    if (!this.#connected) return false;
    this.#readToEnd();
    const read = readResponse(bytes, this.#isSotw ? 'sotw' : 'delta');
    const envelope = read.ok ? read.value : read.error;
    const type = this.#types.get(typeUrl(envelope.typeUrl));
    if (type === undefined || type.requestCount === 0) {
      if (!read.ok) this.add({ kind: 'fail', reason: read.error.reason });
      else if (envelope.typeUrl === '') this.add({ kind: 'fail', reason: 'a response without type_url' });
      else this.#refuseUnsolicited(read.value);
      return false;
    }
    if (!read.ok) {
      // Without a nonce there is nothing to refuse, and the framing itself may be broken.
      if (read.error.nonce === '') this.add({ kind: 'fail', reason: read.error.reason });
      else type.reject(read.error.nonce, read.error.reason);
      return false;
    }
    this.responded();
    const response = read.value;
    this.#reading = { of: type, response, rules: type.rules, turns: type.judge(response) };
    return this.readOn();
  }

  /** The next part of a large response is read. True: there is still more. */
  readOn(): boolean {
    const step = this.#reading?.turns.next();
    if (step?.done === true) this.#received(step.value);
    return step?.done === false;
  }

  #readToEnd(): void {
    if (this.#reading !== undefined) this.#received(atOnce(this.#reading.turns));
  }

  #received(judged: Result<() => Transaction>): void {
    if (this.#reading === undefined) return;
    const { of, response, rules } = this.#reading;
    this.#reading = undefined;
    // It may have moved to another stream meanwhile.
    if (this.#types.get(of.type) === of) of.received(response, rules, judged);
  }

  #refuseUnsolicited({ typeUrl: url, nonce }: IncomingResponse): void {
    const { type, known, message } = unsolicitedType(url);
    this.add({ kind: 'answered', type: known, refused: message });
    if (this.#unsolicited.has(known) || this.#unsolicited.size >= maxUnsolicited) return;
    this.#unsolicited.add(known);
    this.add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type: known });
    // In SotW a refusal would subscribe to it.
    if (this.#isSotw) return;
    this.hasForgotten = true; // to upstream this is the first request of the type
    this.send([deltaRefusal(type, nonce, { code: Code.INVALID_ARGUMENT, message })]);
  }
}
