import { isVariant, type Value } from '../model/catalog.ts';
import { getOrMake } from '../model/maps.ts';
import type { Variant } from '../model/resource.ts';
import type { Encoding, ResendItems, Response } from '../model/subscription.ts';
import type { Item } from './item.ts';

/** What is known of a response after it was answered. */
export interface ResponseHeader
  extends Pick<Response, 'serial' | 'nonce' | 'version' | 'resources' | 'receivedAt'> {
  /** SotW: what is missing from it is deleted (protocol §3.7). */
  readonly complete: boolean;
}

/** What a response changes at the client, without its bytes: kept until the client has answered it. */
export interface SentResponse {
  readonly header: ResponseHeader;
  /** Variants that are new to the client. */
  readonly additions: readonly RetainedResource[];
  /** Removed or replaced variants, as they were before. Delta only. */
  readonly removals: readonly RetainedResource[];
}

/** A response as the views keep it. */
export interface EncodedResponse extends Response {
  readonly sent: SentResponse;
}

/** What is made once of the head of a view, when a client asks, for all of them. */
export function onceAtHead<Of extends { readonly atHead: object }, Value>(
  make: (view: Of) => Value,
): (view: Of) => Value {
  const known = new WeakMap<object, Value>();
  return (view) => getOrMake(known, view.atHead, () => make(view));
}

const areSame = (one: Overlay | undefined, other: Overlay | undefined): boolean =>
  one?.size === other?.size && (one?.entries().every(([id, has]) => other?.get(id) === has) ?? true);

/** So many overlays of a head are looked at. */
const maxOverlays = 8;
const overlaysAtHead = onceAtHead((): Overlay[] => []);

/** Clients that have the same share one object, and so their responses: the one `before`, or of others at the head. */
export function sharedOverlay(
  head: { readonly atHead: object },
  before: Overlay | undefined,
  now: Overlay,
): Overlay {
  if (areSame(before, now)) return before ?? now;
  const known = overlaysAtHead(head);
  const same = known.find((one) => areSame(one, now));
  if (same === undefined && known.push(now) > maxOverlays) known.shift();
  return same ?? now;
}

/** The response that moves a cursor to the head of its view. */
export interface Composed {
  /** Undefined: there is nothing to say. */
  readonly response: EncodedResponse | undefined;
  /** What the client has then that the head does not say. */
  readonly overlay: Overlay | undefined;
  /** Some of that is there because its removal was deferred: a later response has it (protocol §8, Order). */
  readonly isDeferring: boolean;
  /** Items whose errors the next response has. */
  readonly untold: ResendItems | undefined;
  /** It is for this client, or for this moment, alone: it has something that the client has rejected, or remaining TTLs. */
  readonly isOwn: boolean;
}

/**
 * The start of a cursor's move to the head, and what decides the response. Cursors with equal steps share one
 * response.
 */
export interface CursorStep {
  /** The revision where it begins; -1: from nothing. */
  readonly from: number;
  readonly resend: ResendItems | undefined;
  /** Ids of the removals that are deferred. */
  readonly deferred: string;
  /** What the client has besides: cursors that took the same responses have the same object. */
  readonly overlay: Overlay | undefined;
  readonly firstResponseDue: boolean;
  readonly encoding: Encoding;
}

/** No serial is lower. */
export const beforeAll = 0;

/** The way of a newcomer to the head. */
export const fromNothing: Omit<CursorStep, 'encoding'> = {
  from: -1,
  resend: undefined,
  deferred: '',
  overlay: undefined,
  firstResponseDue: true,
};

/** What a client has of an item, beside what a view showed at a revision. */
export interface Has {
  readonly item: Item;
  /** Or it was told that there is none, or has got nothing but errors. */
  readonly variant: Value;
  /** The client has got its errors up to this revision. If its removal was deferred, so were its later errors. */
  readonly errorsSentUpTo?: number | undefined;
  /** When the update that removed it arrived, if the removal was deferred. */
  readonly receivedAt?: number | undefined;
  /** When its removal was first deferred, by `Clock.monotonic()`. */
  readonly deferredAt?: number;
  /**
   * Whether the client has it is not known: it was sent, unsubscribed and subscribed again before the client has answered,
   * or rejected. So it is sent again if it is there, and removed if not. In SotW so is all that was unknown meanwhile.
   */
  readonly mayBeDropped?: true;
}

/** A resource that the client has. */
export interface RetainedResource extends Has {
  readonly variant: Variant;
}

/** Its removal is deferred. */
export const isDeferred = ({ deferredAt }: Has): boolean => deferredAt !== undefined;

export const isResource = (has: Has): has is RetainedResource => isVariant(has.variant);

/**
 * What a client has that its position in a view does not say, by the ids of items: resources whose state is unknown there
 * or whose removal was deferred, and absences and errors that it was told and others were not. Never empty: nearly all
 * clients have none.
 */
export type Overlay = ReadonlyMap<string, Has>;

export const overlayOf = (entries: Iterable<readonly [string, Has]>): Overlay | undefined => {
  const overlay = new Map(entries);
  return overlay.size > 0 ? overlay : undefined;
};

/**
 * The encoded responses that lead to a view's head, one for each step. Few steps are in use at a time, and most clients
 * need the newest, so a list is quicker than keys.
 */
export class SharedResponses {
  #known: { readonly step: CursorStep; readonly composed: Composed; isShared: boolean }[] = [];
  readonly #whole = new Map<Encoding, EncodedResponse>();
  readonly #kept: KeptForOthers | undefined;

  constructor(kept?: KeptForOthers) {
    this.#kept = kept;
  }

  /** A response for this step, with a nonce above `lastSerial`: a stream's nonces grow. */
  find(step: CursorStep, lastSerial: number): Composed | undefined {
    for (let index = this.#known.length - 1; index >= 0; index--) {
      const known = this.#known[index];
      if (known === undefined || !sameStep(known.step, step)) continue;
      known.isShared = true;
      const { response } = known.composed;
      return response === undefined || response.serial > lastSerial ? known.composed : undefined;
    }
    return undefined;
  }

  /** The last one is kept, and of those before what has room. */
  add(step: CursorStep, composed: Composed): void {
    const known = this.#known.filter((each) => !sameStep(each.step, step));
    known.push({ step, composed, isShared: step.overlay === undefined && step.deferred === '' });
    let bytes = known.reduce((total, each) => total + bytesOf(each.composed), 0);
    // Streams that stall at many different revisions must not make this long, or large.
    while (known.length > maxShared || (known.length > 1 && bytes > maxSharedBytes))
      bytes -= bytesOf(known.shift()?.composed);
    this.#known = known;
    this.#renew();
  }

  /** Others may get the same bytes. What a client has besides, nobody else may have: those are with the second that gets them. */
  holds(response: Response): boolean {
    return (
      this.#known.some(({ composed, isShared }) => isShared && composed.response === response) ||
      this.#whole.values().some(({ bytes }) => bytes === response.bytes)
    );
  }

  /** The complete state. It is the same for every cursor (protocol §3.7). */
  whole(encoding: Encoding, lastSerial: number): EncodedResponse | undefined {
    const response = this.#whole.get(encoding);
    return response !== undefined && response.serial > lastSerial ? response : undefined;
  }

  addWhole(encoding: Encoding, response: EncodedResponse): void {
    this.#whole.set(encoding, response);
    this.#renew();
  }

  /** The head has moved on, or others keep too much. */
  clear(): void {
    this.#known = [];
    this.#whole.clear();
    this.#kept?.keep(this, 0);
  }

  #renew(): void {
    // A complete state is the same bytes for each step.
    const all = new Set(this.#whole.values().map(({ bytes }) => bytes));
    for (const { composed } of this.#known)
      if (composed.response !== undefined) all.add(composed.response.bytes);
    this.#kept?.keep(
      this,
      all.values().reduce((total, { length }) => total + length, 0),
    );
  }
}

/**
 * What all views keep for others. Two streams make a view, so one peer alone could fill the memory with what it has read:
 * past the bound the oldest is dropped, and made again for who needs it.
 */
export class KeptForOthers {
  readonly #most: () => number;
  /** Bytes, the newest last. */
  readonly #bytes = new Map<SharedResponses, number>();
  #all = 0;

  constructor(most: () => number) {
    this.#most = most;
  }

  /** The newest stays, however large. */
  keep(of: SharedResponses, bytes: number): void {
    this.#all += bytes - (this.#bytes.get(of) ?? 0);
    this.#bytes.delete(of);
    if (bytes === 0) return;
    this.#bytes.set(of, bytes);
    for (const oldest of this.#bytes.keys()) {
      if (oldest === of || this.#all <= this.#most()) return;
      oldest.clear();
    }
  }
}

const maxShared = 64;
const maxSharedBytes = 16 << 20;

const bytesOf = (composed: Composed | undefined): number => composed?.response?.bytes.length ?? 0;

function sameStep(a: CursorStep, b: CursorStep): boolean {
  return (
    a.from === b.from &&
    a.resend === b.resend &&
    a.encoding === b.encoding &&
    a.deferred === b.deferred &&
    a.overlay === b.overlay &&
    a.firstResponseDue === b.firstResponseDue
  );
}
