import type { ResourceName } from '../model/brand.ts';
import { covers, isCollection, type Selected, selectedId } from '../model/selection.ts';
import { WILDCARD } from '../model/transaction.ts';
import { globMatches } from '../model/xdstp.ts';
import type { Kept } from './frame.ts';
import type { View } from './view.ts';

/** Which subscriptions of a view are about something that a client has from elsewhere. */
export class Coverage {
  readonly #view: View;
  #locators: Map<ResourceName, Selected[]> | undefined;

  constructor(view: View) {
    this.#view = view;
  }

  /**
   * A plain name is the same resource whatever the parameters, and shown by wildcards and globs; its own subscription
   * is not meant here. A variant is known by its constraints: every locator that matches them is about it.
   */
  of({ item, variant }: Kept): readonly Selected[] {
    const { name, locator, parameters } = item;
    const { collections } = this.#view.selection;
    if (!locator) {
      return collections.filter((selected) => covers(selected, { selector: name, locator, parameters }));
    }
    const collecting = collections.filter(
      ({ selector, locator: also }) => also && (selector === WILDCARD || globMatches(selector, name)),
    );
    return [...(this.#named().get(name) ?? []), ...collecting].filter((selected) =>
      variant.constraints.matches(selected.parameters),
    );
  }

  /** Whether the view knows what a subscription shows, though it be nothing. */
  knows(selected: Selected): boolean {
    if (isCollection(selected.selector)) return this.#view.answered(selected);
    return this.#view.items.get(selectedId(selected))?.last.value !== 'unknown';
  }

  #named(): ReadonlyMap<ResourceName, Selected[]> {
    if (this.#locators === undefined) {
      const { entries } = this.#view.selection;
      const named = [...entries.values()].filter(
        ({ locator, selector }) => locator && !isCollection(selector),
      );
      this.#locators = Map.groupBy(named, ({ selector }) => selector);
    }
    return this.#locators;
  }
}
