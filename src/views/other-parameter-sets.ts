import { type ResourceName, resourceName } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import type { Item } from './item.ts';
import type { View } from './view.ts';

/** What the items of one spelling show, over all parameter sets of locators, or of plain names. */
interface SpellingState {
  /** How many items are unknown. */
  readonly unknown: number;
  readonly absent: number;
  readonly names: ReadonlySet<ResourceName>;
  /** By `shownVariantKey`. */
  readonly variants: ReadonlySet<string>;
}

/**
 * What a view shows of one name for the other parameter sets of the same client. Computed once for each spelling,
 * because a client may subscribe to one name with thousands of parameter sets. Valid while the view does not change.
 */
export class OtherParameterSets {
  readonly #view: View;
  readonly #plain = new Map<string, SpellingState>();
  readonly #located = new Map<string, SpellingState>();

  constructor(view: View) {
    this.#view = view;
  }

  /** Whether the same locator with other parameters is `unknown` or `absent`. */
  anyOther(item: Item, value: 'unknown' | 'absent'): boolean {
    if (!item.locator || this.#view.forms.length === 1) return false;
    const own: Value | undefined = this.#view.items.get(item.id)?.last.value;
    return this.#of(true, item.spelling, item.name)[value] > (own === value ? 1 : 0);
  }

  /** Whether another parameter set shows the resource, by its name or an alias; `constrained`: exactly this variant. */
  anyShows({ locator, spelling, name }: Item, variant: Variant, constrained: boolean): boolean {
    const shows = (spelled: string, canonical: ResourceName): boolean => {
      const [only, ...more] = this.#view.forms;
      if (only !== undefined && more.length === 0) {
        // Nearly every client has one parameter set.
        const now =
          only.locator === locator ? this.#view.itemOf(locator, only.parameters, spelled) : undefined;
        return isVariant(now?.last.value) && isSame(now.last.value, variant, constrained);
      }
      const { names, variants } = this.#of(locator, spelled, canonical);
      return constrained ? variants.has(shownVariantKey(variant)) : names.has(variant.name);
    };
    if (shows(spelling, name) || shows(variant.name, variant.name)) return true;
    // A resource that was found by an alias is sent under its own name, however the client spells the alias.
    return variant.aliases.some((alias) => {
      const canonical = resourceName(alias);
      if (shows(alias, canonical)) return true;
      return this.#view
        .respelled(canonical)
        .some(
          ({ locator: also, last }) =>
            also === locator && isVariant(last.value) && isSame(last.value, variant, constrained),
        );
    });
  }

  #of(locator: boolean, spelling: string, name: ResourceName): SpellingState {
    const known = locator ? this.#located : this.#plain;
    const shown = known.get(spelling) ?? this.#look(locator, spelling, name);
    known.set(spelling, shown);
    return shown;
  }

  #look(locator: boolean, spelling: string, name: ResourceName): SpellingState {
    let [unknown, absent] = [0, 0];
    const names = new Set<ResourceName>();
    const variants = new Set<string>();
    for (const { last } of this.#view.spelled(locator, spelling, name)) {
      if (last.value === 'unknown') unknown++;
      else if (last.value === 'absent') absent++;
      else {
        names.add(last.value.name);
        variants.add(shownVariantKey(last.value));
      }
    }
    return { unknown, absent, names, variants };
  }
}

const shownVariantKey = ({ name, constraints }: Variant): string => `${constraints.key} ${name}`;

const isSame = (a: Variant, b: Variant, constrained: boolean): boolean =>
  a.name === b.name && (!constrained || a.constraints.key === b.constraints.key);
