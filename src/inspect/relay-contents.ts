import type { Contents } from '../history/recorder.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { type Content, NO_CONTENT } from '../model/change.ts';
import type { Relay } from '../relay.ts';

/** What a relay has under its names, for the history. */
export class RelayContents implements Contents {
  readonly #relay: Relay;

  constructor(relay: Relay) {
    this.#relay = relay;
  }

  released(type: TypeUrl, name: ResourceName): Content {
    return this.#relay.gate.contentOf(type, name, 'released');
  }

  said(type: TypeUrl, name: ResourceName): Content {
    for (const [url, table] of this.#relay.store.tables()) {
      if (url !== type) continue;
      const variants = table.resources.get(name)?.variants.values() ?? [];
      return variants.map(({ variant, holders }) => ({ variant, holders: [...holders] }));
    }
    return NO_CONTENT;
  }

  discarded(type: TypeUrl): ReadonlySet<ResourceName> {
    const names = new Set<ResourceName>();
    for (const pending of this.#relay.gate.pending) {
      if (pending.type === type && pending.masked === 'discarded') names.add(pending.name);
    }
    return names;
  }

  *names(): Iterable<readonly [TypeUrl, ResourceName]> {
    for (const [type, table] of this.#relay.store.tables()) {
      for (const name of table.resources.keys()) yield [type, name];
    }
  }
}
