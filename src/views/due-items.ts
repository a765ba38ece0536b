import { type ResendItems, resendItems } from '../model/subscription.ts';

/** The items that are sent next even if the client has them. Cursors with one object share the response. */
export class DueItems {
  #items: ResendItems | undefined;

  get current(): ResendItems | undefined {
    return this.#items;
  }

  has(id: string): boolean {
    return this.#items?.items.has(id) === true;
  }

  add(added: ResendItems): void {
    if (this.#items === added) return;
    this.#items = this.#items === undefined ? added : resendItems(added.items.union(this.#items.items));
  }

  clear(): void {
    this.#items = undefined;
  }
}
