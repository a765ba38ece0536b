import type { Contents } from '../history/recorder.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { type Content, NO_CONTENT } from '../model/change.ts';
import type { Relay } from '../relay.ts';

/** What a relay has under its names, for the history. */
export class RelayContents implements Contents {
  readonly #relay: () => Relay;

  /** Called each time: the history is there before the relay. */
  constructor(relay: () => Relay) {
    this.#relay = relay;
  }

  released(type: TypeUrl, name: ResourceName): Content {
    if (!this.isHeld(type)) return this.said(type, name);
    return this.#relay().gate.contentOf(type, name, 'released');
  }

  isHeld(type: TypeUrl): boolean {
    return this.#relay().store.held.side(type, 'released') !== undefined;
  }

  said(type: TypeUrl, name: ResourceName): Content {
    const variants = this.#relay().store.table(type)?.resources.get(name)?.variants.values() ?? NO_CONTENT;
    return variants.map(({ variant, holders }) => ({ variant, holders: [...holders] }));
  }

  discarded(type: TypeUrl): ReadonlySet<ResourceName> {
    const names = new Set<ResourceName>();
    for (const pending of this.#relay().gate.pending) {
      if (pending.type === type && pending.masked === 'discarded') names.add(pending.name);
    }
    return names;
  }

  *names(): Iterable<readonly [TypeUrl, ResourceName]> {
    for (const [type, table] of this.#relay().store.tables()) {
      for (const name of table.resources.keys()) yield [type, name];
    }
  }
}
