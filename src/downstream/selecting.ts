import { resourceName, type TypeUrl } from '../model/brand.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { SelectionEntry } from '../model/selection.ts';
import { quote } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { atOnce, type InTurns, ReadingPace } from '../model/turns.ts';
import { authorityOf, canonicalName } from '../model/xdstp.ts';
import { type Locator, readSelectorsInTurns, type SelectorFields } from '../wire/requests.ts';
import type { ClientContext } from './services.ts';

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
