import type { Parameters } from '../model/parameters.ts';
import { isCollection, itemId, type Selection, type SelectionEntry } from '../model/selection.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { parentGlob } from '../model/xdstp.ts';
import type { Item } from './item.ts';

interface LocatorPosition {
  readonly id: string;
  readonly parameters: Parameters;
}

interface MovedLocator {
  readonly from: SelectionEntry;
  readonly to: Parameters;
}

const none: readonly never[] = [];

/**
 * Locators whose parameters have changed though the client sent the same (a trusted rule, and a node or rules that
 * changed). Several may have had the same parameters by that, and have different ones now.
 */
export class MovedLocators {
  readonly #named: ReadonlyMap<string, readonly MovedLocator[]>;
  /** Of wildcards and globs, by `collectionKey`. */
  readonly #collecting: ReadonlyMap<string, readonly MovedLocator[]>;

  constructor(before: Selection, now: Selection) {
    const moved = movedIn(before, now);
    this.#named = Map.groupBy(moved, ({ from }) => itemId(true, from.parameters, from.spelling));
    const collecting = moved.filter(({ from }) => isCollection(from.selector));
    this.#collecting = Map.groupBy(collecting, ({ from }) => collectionKey(from.parameters, from.selector));
  }

  /** What an item of before may be now: it came by its name, or as a member. */
  positionsOf({ id, name, spelling, locator, parameters: before }: Item): readonly LocatorPosition[] {
    if (!locator) return none;
    const collections = [WILDCARD, parentGlob(name) ?? WILDCARD].map((selector) =>
      collectionKey(before, selector),
    );
    const collecting = [...new Set(collections)].flatMap((key) => this.#collecting.get(key) ?? []);
    return [...(this.#named.get(id) ?? none), ...collecting].map(({ to: parameters }) => ({
      id: itemId(true, parameters, spelling),
      parameters,
    }));
  }
}

const collectionKey = (parameters: Parameters, selector: Selector): string => `${parameters.id} ${selector}`;

function movedIn(before: Selection, now: Selection): readonly MovedLocator[] {
  const gone = [...before.entries].filter(([id, { locator }]) => locator && !now.has(id));
  if (gone.length === 0) return none;
  const key = ({ locatorParameters, spelling }: SelectionEntry): string =>
    `${locatorParameters?.id} ${spelling}`;
  const parameters = new Map<string, Parameters>();
  for (const selected of now.entries.values()) {
    if (selected.locator) parameters.set(key(selected), selected.parameters);
  }
  return gone.flatMap(([, from]) => {
    const to = parameters.get(key(from));
    return to === undefined ? [] : [{ from, to }];
  });
}
