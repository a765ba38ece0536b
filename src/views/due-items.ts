import { type ResendItems, resendItems } from '../model/subscription.ts';

/** The items that are sent next even if the client has them. Cursors with one object share the response. */
export class DueItems {
  #items: ResendItems | undefined;
  #isOwn = false;

  get current(): ResendItems | undefined {
    return this.#items;
  }

  /** No other cursor has this object. */
  get isOwn(): boolean {
    return this.#isOwn;
  }

  has(id: string): boolean {
    return this.#items?.items.has(id) === true;
  }

  add(added: ResendItems): void {
    if (this.#items === added) return;
    if (this.#items === undefined) this.#items = added;
    else this.addOwn(added.items);
  }

  /** What one client alone asked for again. */
  addOwn(ids: ReadonlySet<string>): void {
    this.#items = resendItems(this.#items === undefined ? ids : ids.union(this.#items.items));
    this.#isOwn = true;
  }

  clear(): void {
    this.#items = undefined;
    this.#isOwn = false;
  }
}
