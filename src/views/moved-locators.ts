import type { Parameters } from '../model/parameters.ts';
import { isCollection, itemId, type Selection, type SelectionEntry } from '../model/selection.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { parentGlob } from '../model/xdstp.ts';
import type { Item } from './item.ts';

interface MovedItem {
  readonly id: string;
  readonly parameters: Parameters;
}

interface MovedLocator {
  readonly from: SelectionEntry;
  readonly to: Parameters;
}

const none: readonly never[] = [];

/**
 * Locators whose parameters have changed, though the client sent the same locators: a trusted rule overrides them, and
 * the node or the rules have changed. Locators that had equal parameters may have different ones now.
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

  /** The items of the new selection that an item of the old one may have become: by its name, or as a member. */
  targetsOf({ id, name, spelling, locator, parameters: before }: Item): readonly MovedItem[] {
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
  const ended = [...before.entries].filter(([id, { locator }]) => locator && !now.has(id));
  if (ended.length === 0) return none;
  const key = ({ locatorParameters, spelling }: SelectionEntry): string =>
    `${locatorParameters?.id} ${spelling}`;
  const parameters = new Map<string, Parameters>();
  for (const selected of now.entries.values()) {
    if (selected.locator) parameters.set(key(selected), selected.parameters);
  }
  return ended.flatMap(([, from]) => {
    const to = parameters.get(key(from));
    return to === undefined ? [] : [{ from, to }];
  });
}
