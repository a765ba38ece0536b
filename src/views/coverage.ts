import type { ResourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import { collectionCovers, entryId, isCollection, type SelectionEntry } from '../model/selection.ts';
import type { RetainedResource } from './frame.ts';
import type { View } from './view.ts';

/**
 * Whether the subscriptions of a view decide about a resource that the client got from an earlier view. `none`: no
 * subscription covers it. `resolved`: all that cover it are. `unresolved`: one of them is not.
 */
export type Covered = 'none' | 'resolved' | 'unresolved';

/** The locators about one name: many parameter sets of one client may have shown the same variant. */
interface Located {
  readonly locators: readonly SelectionEntry[];
  readonly byParameters: ReadonlyMap<Parameters, readonly SelectionEntry[]>;
  readonly judged: Map<Constraints, Covered>;
}

/**
 * Which subscriptions of a view cover a resource that the client got from an earlier view. Valid while the view does
 * not change.
 */
export class Coverage {
  readonly #view: View;
  readonly #located = new Map<ResourceName, Located>();

  constructor(view: View) {
    this.#view = view;
  }

  /**
   * By a plain name it is the same resource whatever the parameters: the wildcards and globs that show it decide (its own
   * subscription is looked at elsewhere). By a locator it is one variant: every locator whose parameters match its
   * constraints decides, and the locator that brought it, even if that has other parameters now.
   *
   *     the client has a {env == "prod"}; the view selects a with env=prod, which is unknown   →  unresolved
   *     the view selects a with env=test only, which is resolved                                →  none
   */
  of({ item, variant }: RetainedResource): Covered {
    const { name, locator, parameters } = item;
    const { selection } = this.#view;
    if (!locator) {
      const collecting = isCollection(name) ? [] : selection.collectionsOver(name);
      return this.#judge(collecting.filter((selected) => !selected.locator));
    }
    const located = this.#locatedOf(name);
    const judged = this.#judgeVariant(located, variant.constraints);
    if (variant.constraints.matches(parameters) || judged === 'unresolved') return judged;
    const own = this.#judge(located.byParameters.get(parameters) ?? []);
    return own === 'none' ? judged : own;
  }

  #locatedOf(name: ResourceName): Located {
    const known = this.#located.get(name);
    if (known !== undefined) return known;
    const locators = this.#view.selection.entriesFor(name).filter(({ locator }) => locator);
    const byParameters = Map.groupBy(locators, ({ parameters }) => parameters);
    const created: Located = { locators, byParameters, judged: new Map() };
    this.#located.set(name, created);
    return created;
  }

  #judgeVariant({ locators, judged }: Located, constraints: Constraints): Covered {
    const known =
      judged.get(constraints) ??
      this.#judge(locators.filter(({ parameters }) => constraints.matches(parameters)));
    judged.set(constraints, known);
    return known;
  }

  #judge(covering: readonly SelectionEntry[]): Covered {
    if (covering.length === 0) return 'none';
    return covering.every((selected) => this.#isResolved(selected)) ? 'resolved' : 'unresolved';
  }

  #isResolved(selected: SelectionEntry): boolean {
    if (isCollection(selected.selector)) return this.#view.isResolved(selected);
    return this.#view.items.get(entryId(selected))?.last.value !== 'unknown';
  }
}

/** The items that some of a view's wildcards and globs show. */
export function* itemsOf(
  { items, selection }: View,
  collections: ReadonlySet<SelectionEntry>,
): Iterable<string> {
  if (collections.size === 0) return;
  for (const { id, name: selector, locator, parameters } of items.values()) {
    const shown = selection
      .collectionsOver(selector)
      .some((one) => collections.has(one) && collectionCovers(one, { selector, locator, parameters }));
    if (shown) yield id;
  }
}
