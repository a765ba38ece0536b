import { type Absences, type CursorPosition } from './client-resources.ts';
import { type Item, valueAt } from './item.ts';
import type { View } from './view.ts';

/**
 * A locator client gets the absence of a name without constraints, which does not say for which parameters. So it is
 * withheld while the name is unknown for other parameters of this client (protocol §5.10). These are the absences that
 * were withheld at a position:
 *
 *     x {dev} absent, x {prod} unknown                 →  withheld
 *     x {dev} absent and told, then x {prod} is added  →  told: it is in `absent` of the position
 *
 * Valid while the position is the same.
 */
export class WithheldAbsences {
  readonly #position: CursorPosition;
  /** By spelling: whether some parameter set was unknown. A client may name one resource with thousands of them. */
  readonly #unknown = new Map<string, boolean>();

  constructor(position: CursorPosition) {
    this.#position = position;
  }

  has(id: string): boolean {
    const { view, revision, absent } = this.#position;
    if (view.forms.length === 1 || absent?.has(id) === true) return false;
    const item = view.items.get(id);
    return item?.locator === true && valueAt(item, revision) === 'absent' && this.#isUnknownForSome(item);
  }

  #isUnknownForSome({ spelling, name }: Item): boolean {
    const { view, revision } = this.#position;
    const unknown =
      this.#unknown.get(spelling) ??
      view.spelled(true, spelling, name).some((other) => valueAt(other, revision) === 'unknown');
    this.#unknown.set(spelling, unknown);
    return unknown;
  }
}

/** The absences that a client was told, of those that are withheld from others at the head of a view. */
export function toldAtHead(view: View, isTold: (item: Item) => boolean): Absences | undefined {
  if (view.forms.length === 1) return undefined;
  const { head: revision, generation } = view;
  const withheld = new WithheldAbsences({ view, revision, generation });
  const told = view.items
    .values()
    .filter((item) => withheld.has(item.id) && isTold(item))
    .map(({ id }) => [id, revision] as const);
  const absences = new Map(told);
  return absences.size > 0 ? absences : undefined;
}
