import type { TypeUrl } from '../model/brand.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Selection } from '../model/selection.ts';
import type { RequestKind } from '../model/subscription.ts';
import {
  type DeltaRequest,
  readVersions,
  type SelectorFields,
  type SotwRequest,
  subscribed,
  unsubscribed,
} from '../wire/requests.ts';
import { type DeltaStep, stepDelta } from './delta.ts';
import type { ClientContext } from './services.ts';
import {
  type Handled,
  knownSelections,
  nothingNamed,
  type StreamContext,
  TypeStream,
  unchanged,
} from './type-stream.ts';

/** One type on a delta stream. Requests say what changes in what the client subscribes to (protocol §4). */
export class DeltaTypeStream extends TypeStream {
  /** Of a request that is read ahead. */
  #ahead: readonly [request: DeltaRequest, step: Result<DeltaStep>] | undefined;

  constructor(type: TypeUrl, client: ClientContext, context: StreamContext) {
    super(type, 'delta', client, context);
  }

  override repeats(): boolean {
    return false;
  }

  protected override listsOf(
    request: SotwRequest | DeltaRequest,
  ): readonly (readonly [Buffer | undefined, SelectorFields])[] {
    if (request.kind !== 'delta') return [];
    return [
      [request.subscribe, subscribed],
      [request.unsubscribe, unsubscribed],
    ];
  }

  protected override selectionOf(
    request: SotwRequest | DeltaRequest,
    client: ClientContext,
  ): Selection | undefined {
    if (request.kind !== 'delta') return undefined;
    const step = this.#stepOf(request, client);
    this.#ahead = [request, step];
    return step.ok && step.value.changed ? step.value.selection : undefined;
  }

  #takeAhead(request: DeltaRequest): Result<DeltaStep> | undefined {
    const [ahead, step] = this.#ahead ?? [];
    this.#ahead = undefined;
    return ahead === request ? step : undefined;
  }

  #stepOf(request: DeltaRequest, client: ClientContext): Result<DeltaStep> {
    return this.subscription === undefined ? this.#firstStep(request, client) : this.#step(request, client);
  }

  handle(request: SotwRequest | DeltaRequest, client: ClientContext): Result<Handled> {
    if (request.kind !== 'delta') return fail('a SotW request on a delta stream');
    const first = this.subscription === undefined;
    const kind = this.#kindOf(request);
    if (!this.#admitsLists(request, client)) return unchanged[kind];
    const step = this.#takeAhead(request) ?? this.#stepOf(request, client);
    if (!step.ok) return step;
    const versions =
      first && request.initialVersions !== undefined ? readVersions(request.initialVersions) : undefined;
    if (versions?.ok === false) return versions;
    const { selection, resend, mustAnswer, changed } = step.value;
    if (!changed) return unchanged[kind];
    const subscription = this.select(selection, client, resend, mustAnswer);
    if (subscription === undefined) return unchanged[kind];
    if (first) subscription.resume({ initialVersions: versions?.value, waitForAll: client.relay });
    return ok({ kind: kind === 'stale' ? 'subscribe' : kind, changed: true, reread: false });
  }

  /** If many clients send the same first request, it is read once. */
  #firstStep(request: DeltaRequest, client: ClientContext): Result<DeltaStep> {
    if (request.unsubscribe !== undefined) return this.#step(request, client);
    const bytes = request.subscribe ?? nothingNamed;
    const known = knownSelections.find(client.selectionGroup, this.info.url, bytes);
    if (known !== undefined)
      return ok({ selection: known, resend: new Set(), mustAnswer: [], changed: true });
    const step = this.#step(request, client);
    if (step.ok) knownSelections.add(client.selectionGroup, this.info.url, bytes, step.value.selection);
    return step;
  }

  /** The nonce does not gate what it subscribes to (§4.3); it answers only an outstanding response. */
  #kindOf({ nonce, error }: DeltaRequest): RequestKind {
    if (nonce === '') return 'subscribe';
    const kind = this.answer(nonce, error);
    return kind === 'ack' || kind === 'nack' ? kind : 'stale';
  }

  #admitsLists({ subscribe, unsubscribe, initialVersions }: DeltaRequest, client: ClientContext): boolean {
    const { limits } = this.context;
    return (
      limits.names(subscribe, subscribed, client) &&
      limits.names(unsubscribe, unsubscribed, client) &&
      limits.versions(initialVersions, client)
    );
  }

  #step(request: DeltaRequest, client: ClientContext): Result<DeltaStep> {
    const subscribe = this.selected(request.subscribe, subscribed, client);
    if (!subscribe.ok) return subscribe;
    const unsubscribe = this.selected(request.unsubscribe, unsubscribed, client);
    if (!unsubscribe.ok) return unsubscribe;
    return ok(
      stepDelta(this.selection, {
        first: this.subscription === undefined,
        subscribe: subscribe.value,
        unsubscribe: unsubscribe.value,
        wildcard: this.legacyWildcard(client),
      }),
    );
  }
}
