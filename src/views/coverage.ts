import type { ResourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import { isCollection, type Selected, selectedId } from '../model/selection.ts';
import type { Kept } from './frame.ts';
import type { View } from './view.ts';

/**
 * What the subscriptions of a view say of a resource that a client has from elsewhere: `none` is about it, what is
 * about it is all `answered`, or something of it is `open`.
 */
export type Covered = 'none' | 'answered' | 'open';

/** Which subscriptions of a view are about something that a client has from elsewhere. Valid while nothing changes. */
export class Coverage {
  readonly #view: View;
  /** Of locators: many parameter sets of one client may have shown the same variant. */
  readonly #located = new Map<ResourceName, Map<Constraints, Covered>>();

  constructor(view: View) {
    this.#view = view;
  }

  /**
   * A plain name is the same resource whatever the parameters, and shown by wildcards and globs; its own subscription
   * is not meant here. A variant is known by its constraints: every locator that matches them is about it.
   */
  of({ item, variant }: Kept): Covered {
    const { name, locator } = item;
    const { selection } = this.#view;
    if (!locator) {
      const collecting = isCollection(name) ? [] : selection.collecting(name);
      return this.#judge(collecting.filter((selected) => !selected.locator));
    }
    const { constraints } = variant;
    const known = this.#located.get(name) ?? new Map<Constraints, Covered>();
    this.#located.set(name, known);
    const judged =
      known.get(constraints) ??
      this.#judge(
        selection
          .about(name)
          .filter(({ locator: also, parameters }) => also && constraints.matches(parameters)),
      );
    known.set(constraints, judged);
    return judged;
  }

  #judge(covering: readonly Selected[]): Covered {
    if (covering.length === 0) return 'none';
    return covering.every((selected) => this.#knows(selected)) ? 'answered' : 'open';
  }

  /** Whether the view knows what a subscription shows, though it be nothing. */
  #knows(selected: Selected): boolean {
    if (isCollection(selected.selector)) return this.#view.answered(selected);
    return this.#view.items.get(selectedId(selected))?.last.value !== 'unknown';
  }
}
