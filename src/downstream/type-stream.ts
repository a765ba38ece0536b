import type { TypeUrl } from '../model/brand.ts';
import { keptError } from '../model/error-text.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { ok, type Result } from '../model/result.ts';
import { EMPTY_SELECTION, Selection, type SelectionEntry } from '../model/selection.ts';
import {
  type AnswerKind,
  type Encoding,
  encoding,
  type RequestKind,
  type ResendItems,
  type Subscriber,
  type Subscription,
} from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import type { InTurns } from '../model/turns.ts';
import { type TypeInfo, typeInfo } from '../model/types.ts';
import {
  type DeltaRequest,
  type ErrorDetail,
  type SelectorFields,
  type SotwRequest,
} from '../wire/requests.ts';
import { type Admission, excessOfNames } from './admission.ts';
import { KnownSelections } from './known-selections.ts';
import { reselect, selectAll, selectInTurns, selectName } from './selecting.ts';
import type { ClientContext, DownstreamServices } from './services.ts';

export const knownSelections = new KnownSelections();

/**
 * Envoy's listeners wait for these until they come, or until initial_fetch_timeout. A response that removes one that
 * never came ends that time, and is ignored: the listener waits for ever, and so does an Envoy that starts (E, 1.40).
 */
const waitedFor: ReadonlySet<string> = new Set(['rds', 'ecds']);

/** The bytes of a request that names nothing. */
export const nothingNamed = Buffer.alloc(0);

/** What `readAhead` has read for one client, until the request is handled. */
const readBefore = new WeakMap<Buffer, Result<readonly SelectionEntry[]>>();

export interface Handled {
  readonly kind: RequestKind;
  /** The subscription changed: it counts against the rate limit. */
  readonly changed: boolean;
  /** The names were read, though they are the same in another order: that counts if they are many. */
  readonly reread: boolean;
}

/** What a stream gives to each of its types. */
export interface StreamContext extends Subscriber {
  readonly services: DownstreamServices;
  readonly limits: Admission;
}

/** One type on one stream: what the client's requests make of its subscription. */
export abstract class TypeStream {
  readonly info: TypeInfo;
  protected readonly context: StreamContext;
  protected encoding: Encoding;
  #subscription: Subscription | undefined;
  /** The limits allow it: `readAhead` has asked. */
  #admitted: Selection | undefined;

  constructor(type: TypeUrl, protocol: Encoding['protocol'], client: ClientContext, context: StreamContext) {
    this.info = typeInfo(type);
    this.context = context;
    const { services } = context;
    this.encoding = encoding({
      protocol,
      wrapped: client.wrapped,
      ttl: client.ttl,
      constrained: services.constrained(),
      contentVersions: protocol === 'sotw' && services.contentVersions(),
      unknownNames: protocol === 'sotw' && client.unknownNames,
      absencesUnsaid: protocol === 'delta' && client.isEnvoy && waitedFor.has(this.info.short),
    });
  }

  /** The names and locators of a request, with the numbers of their fields. */
  protected abstract listsOf(
    request: SotwRequest | DeltaRequest,
  ): readonly (readonly [range: Buffer | undefined, fields: SelectorFields])[];

  /** Whether equal bytes show that a request changes nothing. */
  abstract repeats(request: SotwRequest | DeltaRequest): boolean;

  /** What a request, whose names are read, will select; undefined: nothing else than now, or nothing that is allowed. */
  protected abstract selectionOf(
    request: SotwRequest | DeltaRequest,
    client: ClientContext,
  ): Selection | undefined;

  /**
   * Reads a large request before `handle` is called with it, a part in each turn of the event loop, and makes what it
   * subscribes to. What is returned must be called after that.
   */
  *readAhead(request: SotwRequest | DeltaRequest, client: ClientContext): InTurns<(() => void) | undefined> {
    const limits = this.context.services.limits();
    for (const [range, fields] of this.listsOf(request)) {
      // `handle` refuses it.
      if (!client.exempt && excessOfNames(range, fields, limits) !== undefined) return undefined;
      if (range !== undefined)
        readBefore.set(range, yield* selectInTurns(range, fields, this.info.url, client));
    }
    yield;
    const selection = this.selectionOf(request, client);
    if (selection === undefined || selection.equals(this.selection)) return undefined;
    yield;
    if (!this.context.limits.selection(this, selection, client)) return undefined;
    this.#admitted = selection;
    yield;
    return yield* this.context.services.prepare(this.info.url, selection, client.access);
  }

  /** `request` is one of the stream's protocol. */
  abstract handle(request: SotwRequest | DeltaRequest, client: ClientContext): Result<Handled>;

  /** Undefined before the first request. */
  get subscription(): Subscription | undefined {
    return this.#subscription;
  }

  get selection(): Selection {
    return this.#subscription?.selection ?? EMPTY_SELECTION;
  }

  /** Some of its locators came with dynamic parameters. */
  get hasOwnParameters(): boolean {
    return this.selection.entries
      .values()
      .some(({ locatorParameters = NO_PARAMETERS }) => locatorParameters !== NO_PARAMETERS);
  }

  /** The client's node or its access has changed: the same names are selected again with the new parameters. */
  reselect(client: ClientContext): void {
    // The client features may have changed. Whether constraints are sent does not change: a removal must be in the
    // form in which the resource was sent.
    this.encoding = encoding({ ...this.encoding, wrapped: client.wrapped, ttl: client.ttl });
    if (this.#subscription === undefined) return;
    this.#subscription.encoding = this.encoding;
    const selected = [...this.selection.entries.values()].map((one) => reselect(one, client));
    this.#subscription.select(Selection.of(selected), client.access, new Set(), []);
  }

  /** EDS that a change of clusters calls for (protocol §10.1). */
  resend(ids: ResendItems): void {
    this.#subscription?.resend(ids);
  }

  close(): void {
    this.#subscription?.close();
  }

  protected answer(nonce: string, error: ErrorDetail | undefined): AnswerKind {
    if (this.#subscription === undefined) return 'first';
    const clientError = error && {
      code: error.code,
      message: keptError(error.message),
      at: this.context.services.clock.now(),
    };
    return this.#subscription.answer(nonce, clientError);
  }

  /** Subscribes to this from now on; undefined: the limits do not allow it, and the stream is over. */
  protected select(
    selection: Selection,
    client: ClientContext,
    again: ReadonlySet<string>,
    mustAnswer: readonly SelectionEntry[],
  ): Subscription | undefined {
    const { limits, services } = this.context;
    const isAdmitted = this.#admitted === selection;
    this.#admitted = undefined;
    if (!isAdmitted && !limits.selection(this, selection, client)) return undefined;
    if (this.#subscription === undefined) {
      this.#subscription = services.open(
        this.info.url,
        this.encoding,
        selection,
        client.access,
        this.context,
      );
    } else {
      this.#subscription.select(selection, client.access, again, mustAnswer);
    }
    return this.#subscription;
  }

  /** What the names and locators in a range of a request select for this client. */
  protected selected(
    range: Buffer | undefined,
    fields: SelectorFields,
    client: ClientContext,
  ): Result<readonly SelectionEntry[]> {
    const read = range && readBefore.get(range);
    return read ?? selectAll(range, fields, this.info.url, client);
  }

  protected legacyWildcard(client: ClientContext): SelectionEntry | undefined {
    if (!this.context.services.legacyWildcard(this.info.url)) return undefined;
    const selected = selectName(WILDCARD, this.info.url, client);
    return selected.ok ? selected.value : undefined;
  }
}

const nothingChanged = (kind: RequestKind): Result<Handled, never> =>
  ok({ kind, changed: false, reread: false });

/** What requests come to that change nothing. Most are ACKs. */
export const unchanged = {
  subscribe: nothingChanged('subscribe'),
  ack: nothingChanged('ack'),
  nack: nothingChanged('nack'),
  stale: nothingChanged('stale'),
} as const;
