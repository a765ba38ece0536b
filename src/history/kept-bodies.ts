import type { Content } from '../model/change.ts';
import type { Payload } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';

/** What a name costs beside its bodies, in bytes: by measurement, rounded up. */
const nameBytes = 400;

interface Kept {
  readonly payload: Payload;
  uses: number;
}

/** The bodies that a history keeps: equal ones once, whatever the cache did with them meanwhile. */
export class KeptBodies {
  /** By hash. Different bodies with one hash are kept as they are, and counted as one. */
  readonly #payloads = new Map<string, Kept>();
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  /** The same content, with the bodies that are kept already. */
  keep(content: Content): Content {
    this.#bytes += nameBytes;
    return content.map((held) => this.#keep(held));
  }

  drop(content: Content): void {
    this.#bytes -= nameBytes;
    for (const { variant } of content) {
      const kept = this.#payloads.get(variant.payload?.hash ?? '');
      if (kept === undefined || --kept.uses > 0) continue;
      this.#payloads.delete(kept.payload.hash);
      this.#bytes -= kept.payload.bytes.length;
    }
  }

  #keep(held: HeldVariant): HeldVariant {
    const { payload } = held.variant;
    if (payload === undefined) return held;
    const kept = this.#payloads.get(payload.hash);
    if (kept === undefined) {
      this.#payloads.set(payload.hash, { payload, uses: 1 });
      this.#bytes += payload.bytes.length;
      return held;
    }
    kept.uses++;
    const same = kept.payload === payload || Buffer.compare(kept.payload.bytes, payload.bytes) !== 0;
    return same ? held : { ...held, variant: { ...held.variant, payload: kept.payload } };
  }
}
