import { resourceName, type TypeUrl } from '../model/brand.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Selection, SelectionEntry } from '../model/selection.ts';
import { quote } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { atOnce, type InTurns, ReadingPace } from '../model/turns.ts';
import { authorityOf, canonicalName } from '../model/xdstp.ts';
import { type Locator, readSelectorsInTurns, type SelectorFields, sotwSelectors } from '../wire/requests.ts';
import type { ClientContext, DownstreamServices } from './services.ts';
import type { SotwNames } from './steps.ts';

/** More on one locator is no locator but an attack. */
const maxParameters = 128;
const maxParameterLength = 4096;
/** A name with 128 parameters takes 0.1 ms. */
const selectedPerTurn = 500;

/** What a plain name selects for this client. */
export function selectName(name: string, type: TypeUrl, client: ClientContext): Result<SelectionEntry> {
  if (client.passesVariants) return selectLocator({ name, parameters: [] }, type, client);
  if (name === WILDCARD) {
    const parameters = client.derived(undefined);
    return ok({
      selector: WILDCARD,
      spelling: name,
      locator: false,
      parameters,
      locatorParameters: undefined,
    });
  }
  const canonical = canonicalName(name, type);
  if (!canonical.ok) return canonical;
  const parameters = client.derived(authorityOf(name));
  return ok({
    selector: canonical.value,
    spelling: name,
    locator: false,
    parameters,
    locatorParameters: undefined,
  });
}

/** What a TP2 locator selects for this client. */
export function selectLocator(
  { name, parameters }: Locator,
  type: TypeUrl,
  client: ClientContext,
): Result<SelectionEntry> {
  if (parameters.length > maxParameters) {
    return fail(
      `locator ${quote(name, 80)} has ${parameters.length} dynamic parameters: at most ${maxParameters} are accepted`,
    );
  }
  for (const [key, value] of parameters) {
    if (key.length > maxParameterLength || value.length > maxParameterLength) {
      return fail(
        `dynamic parameter ${quote(key, 80)} of locator ${quote(name, 80)} is too long: at most ${maxParameterLength} characters are accepted`,
      );
    }
  }
  const canonical = name === WILDCARD ? ok(resourceName(name)) : canonicalName(name, type);
  if (!canonical.ok) return canonical;
  const locatorParameters = internParameters(parameters);
  return ok({
    selector: canonical.value,
    spelling: name,
    locator: true,
    parameters: client.merged(locatorParameters, authorityOf(name)),
    locatorParameters,
  });
}

/** What the names and locators in a range of a request select for this client. */
export function selectAll(
  range: Buffer | undefined,
  fields: SelectorFields,
  type: TypeUrl,
  client: ClientContext,
): Result<readonly SelectionEntry[]> {
  return atOnce(selectInTurns(range, fields, type, client));
}

/** The same, a part in each turn of the event loop. */
export function* selectInTurns(
  range: Buffer | undefined,
  fields: SelectorFields,
  type: TypeUrl,
  client: ClientContext,
): InTurns<Result<readonly SelectionEntry[]>> {
  const read = yield* readSelectorsInTurns(range, fields);
  if (!read.ok) return read;
  const pace = new ReadingPace(selectedPerTurn);
  const list: SelectionEntry[] = [];
  for (const name of read.value.names) {
    if (pace.isTurnOver(0)) yield;
    const selected = selectName(name, type, client);
    if (!selected.ok) return selected;
    list.push(selected.value);
  }
  for (const locator of read.value.locators) {
    if (pace.isTurnOver(0)) yield;
    const selected = selectLocator(locator, type, client);
    if (!selected.ok) return selected;
    list.push(selected.value);
  }
  return ok(list);
}

/** The same subscription of a client whose node, certificate or rules have changed. */
export function reselect(selected: SelectionEntry, client: ClientContext): SelectionEntry {
  const authority = selected.selector === WILDCARD ? undefined : authorityOf(selected.spelling);
  const parameters: Parameters =
    selected.locatorParameters === undefined
      ? client.derived(authority)
      : client.merged(selected.locatorParameters, authority);
  return { ...selected, parameters };
}

/** The bytes of a request that names nothing. */
export const nothingNamed = Buffer.alloc(0);

/** What an empty first request selects; undefined: nothing. */
export function legacyWildcard(
  type: TypeUrl,
  client: ClientContext,
  services: Pick<DownstreamServices, 'legacyWildcard'>,
): SelectionEntry | undefined {
  if (!services.legacyWildcard(type)) return undefined;
  const selected = selectName(WILDCARD, type, client);
  return selected.ok ? selected.value : undefined;
}

/** What a request selects that names everything (SotW, or a poll). `read`: what its names select, if that is known. */
export function selectState(
  selectors: Buffer | undefined,
  type: TypeUrl,
  client: ClientContext,
  services: Pick<DownstreamServices, 'legacyWildcard'>,
  names: SotwNames,
  read?: Result<readonly SelectionEntry[]>,
): Result<Selection> {
  const bytes = selectors ?? nothingNamed;
  const known = knownSelections.find(client.selectionGroup, type, bytes);
  if (known !== undefined) {
    if (selectors !== undefined) names.named();
    return ok(known);
  }
  const selected = read ?? selectAll(bytes, sotwSelectors, type, client);
  if (!selected.ok) return selected;
  const selection = names.selection(selected.value, legacyWildcard(type, client, services));
  knownSelections.add(client.selectionGroup, type, bytes, selection);
  return ok(selection);
}

const maxEntries = 32;
/** Of all entries; they stay when their clients have left. Requests of a fleet that names more are read each time. */
const maxBytes = 4 << 20;

interface KnownSelection {
  readonly selectionGroup: object;
  readonly type: TypeUrl;
  readonly bytes: Buffer;
  /** A selection that no stream has any more may go. */
  readonly selection: WeakRef<Selection>;
}

/**
 * Selections by the bytes that they were read from. When a fleet reconnects, its clients send the same names: they are
 * read once, and all clients share one selection.
 */
class KnownSelections {
  /** The last used last. */
  readonly #known: KnownSelection[] = [];
  #bytes = 0;

  /** `selectionGroup`: for clients of one group, the same bytes select the same. */
  find(selectionGroup: object, type: TypeUrl, bytes: Buffer): Selection | undefined {
    for (let index = this.#known.length - 1; index >= 0; index--) {
      const known = this.#known[index];
      if (known === undefined || known.selectionGroup !== selectionGroup || known.type !== type) continue;
      if (known.bytes.length !== bytes.length || !known.bytes.equals(bytes)) continue;
      if (index < this.#known.length - 1) {
        this.#known.splice(index, 1);
        this.#known.push(known);
      }
      return known.selection.deref();
    }
    return undefined;
  }

  /** `bytes` may be used again by others afterwards: they are copied. */
  add(selectionGroup: object, type: TypeUrl, bytes: Buffer, selection: Selection): void {
    if (bytes.length > maxBytes) return;
    this.#known.push({ selectionGroup, type, bytes: Buffer.from(bytes), selection: new WeakRef(selection) });
    this.#bytes += bytes.length;
    while (this.#known.length > maxEntries || this.#bytes > maxBytes) {
      this.#bytes -= this.#known.shift()?.bytes.length ?? 0;
    }
  }
}

export const knownSelections = new KnownSelections();
