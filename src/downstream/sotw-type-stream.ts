import type { TypeUrl } from '../model/brand.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { EMPTY_SELECTION, type Selection } from '../model/selection.ts';
import type { RequestKind, Subscription } from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import { type DeltaRequest, type SelectorFields, type SotwRequest, sotwSelectors } from '../wire/requests.ts';
import type { ClientContext } from './services.ts';
import { SotwNames } from './sotw-names.ts';
import {
  type Handled,
  knownSelections,
  nothingNamed,
  type StreamContext,
  TypeStream,
  unchanged,
} from './type-stream.ts';

/** The bytes that a selection was read from, so that whoever sends the same needs no reading. */
const sources = new WeakMap<Selection, Buffer>();

/** One type on a SotW stream. Each request says all that the client subscribes to (protocol §3). */
export class SotwTypeStream extends TypeStream {
  readonly #names = new SotwNames();
  /** The last request named nothing. */
  #namedNothing = false;
  /** Of a request that is read ahead. */
  #ahead: readonly [request: SotwRequest, selection: Result<Selection>] | undefined;

  constructor(type: TypeUrl, client: ClientContext, context: StreamContext) {
    super(type, 'sotw', client, context);
  }

  override repeats(request: SotwRequest | DeltaRequest): boolean {
    return request.kind === 'sotw' && this.#repeatsSelection(request.selectors);
  }

  protected override listsOf(
    request: SotwRequest | DeltaRequest,
  ): readonly (readonly [Buffer | undefined, SelectorFields])[] {
    return request.kind === 'sotw' ? [[request.selectors, sotwSelectors]] : [];
  }

  protected override selectionOf(
    request: SotwRequest | DeltaRequest,
    client: ClientContext,
  ): Selection | undefined {
    if (request.kind !== 'sotw') return undefined;
    // What a stale request names does not count.
    const lastNonce = this.subscription?.responses.lastNonce;
    if (lastNonce !== undefined && lastNonce !== request.nonce) return undefined;
    const read = this.#read(request.selectors, client);
    this.#ahead = [request, read];
    return read.ok ? read.value : undefined;
  }

  handle(request: SotwRequest | DeltaRequest, client: ClientContext): Result<Handled> {
    if (request.kind !== 'sotw') return fail('a delta request on a SotW stream');
    const kind = this.answer(request.nonce, request.error);
    if (kind === 'stale') return unchanged.stale;
    const counted: RequestKind = kind === 'ack' || kind === 'nack' ? kind : 'subscribe';
    // Most requests are ACKs that repeat the selection: equal bytes show that without reading the names.
    if (this.#repeatsSelection(request.selectors)) return unchanged[counted];
    if (!this.context.limits.names(request.selectors, sotwSelectors, client)) return unchanged[counted];
    this.#namedNothing = request.selectors === undefined;
    const read = this.#takeAhead(request) ?? this.#read(request.selectors, client);
    if (!read.ok) return read;
    const before = this.subscription;
    if (before === undefined) return this.#open(read.value, request, client);
    if (read.value.equals(before.selection)) {
      // The node has changed since, and with it what the bytes select.
      rememberSource(before.selection, request.selectors);
      return ok({ kind: counted, changed: false, reread: true });
    }
    const subscription = this.select(read.value, client, added(before.selection, read.value), []);
    if (subscription === undefined) return unchanged[counted];
    rememberSource(subscription.selection, request.selectors);
    return ok({ kind: counted, changed: true, reread: false });
  }

  #takeAhead(request: SotwRequest): Result<Selection> | undefined {
    const [ahead, selection] = this.#ahead ?? [];
    this.#ahead = undefined;
    return ahead === request ? selection : undefined;
  }

  /** The first request of the type. */
  #open(selection: Selection, { selectors, version }: SotwRequest, client: ClientContext): Result<Handled> {
    const subscription = this.select(selection, client, new Set(), []);
    if (subscription === undefined) return unchanged.subscribe;
    rememberSource(subscription.selection, selectors);
    if (version !== '' || client.relay) this.#resume(subscription, version);
    return ok({ kind: 'subscribe', changed: true, reread: false });
  }

  /** Whether a request names what the one before named, or nothing as that did. */
  #repeatsSelection(selectors: Buffer | undefined): boolean {
    if (this.subscription === undefined) return false;
    if (selectors === undefined || this.#namedNothing) return this.#namedNothing && selectors === undefined;
    return sources.get(this.subscription.selection)?.equals(selectors) === true;
  }

  #read(selectors: Buffer | undefined, client: ClientContext): Result<Selection> {
    if (selectors === undefined && this.#names.hasNamed) return ok(EMPTY_SELECTION);
    const { url } = this.info;
    const bytes = selectors ?? nothingNamed;
    const known = knownSelections.find(client.selectionGroup, url, bytes);
    if (known !== undefined) {
      if (selectors !== undefined) this.#names.named();
      return ok(known);
    }
    const selected = this.selected(bytes, sotwSelectors, client);
    if (!selected.ok) return selected;
    const selection = this.#names.selection(selected.value, this.legacyWildcard(client));
    knownSelections.add(client.selectionGroup, url, bytes, selection);
    return ok(selection);
  }

  /**
   * The client reconnects. Resources that it may have must not be deleted while they are unknown. If its version shows that
   * it has everything, nothing is sent. A relay may have nothing itself, but its clients may.
   */
  #resume(subscription: Subscription, version: string): void {
    const { selection } = subscription;
    const possiblyHeld = new Set<string>();
    for (const { spelling } of selection.entries.values()) possiblyHeld.add(spelling);
    const everything = selection.size === 1 && selection.collections[0]?.selector === WILDCARD;
    const isComparable = this.encoding.contentVersions && this.info.fullState && everything && version !== '';
    subscription.resume({ possiblyHeld, contentVersion: isComparable ? version : undefined });
  }
}

function rememberSource(selection: Selection, selectors: Buffer | undefined): void {
  if (selectors === undefined || sources.has(selection)) return;
  sources.set(selection, Buffer.from(selectors));
}

/** Ids of a selection that the one before did not have: they are sent even if unchanged (protocol §3.5). */
function added(before: Selection, after: Selection): ReadonlySet<string> {
  const ids = new Set<string>();
  for (const id of after.entries.keys()) if (!before.has(id)) ids.add(id);
  return ids;
}
