import type { PackedPayloads, StoredPayload } from './records.ts';

/** Gathers payloads into one piece of memory, which another thread takes over without a copy. */
export class Packer {
  #payloads: StoredPayload[] = [];
  #bytes = 0;

  /** Bytes so far. */
  get size(): number {
    return this.#bytes;
  }

  add(payload: StoredPayload): void {
    this.#payloads.push(payload);
    this.#bytes += payload.bytes.length;
  }

  take(): PackedPayloads {
    const bytes = new Uint8Array(this.#bytes);
    const ends: number[] = [];
    let end = 0;
    for (const payload of this.#payloads) {
      bytes.set(payload.bytes, end);
      end += payload.bytes.length;
      ends.push(end);
    }
    const digests = this.#payloads.map(({ digest }) => digest);
    this.#payloads = [];
    this.#bytes = 0;
    return { digests, ends, bytes };
  }
}

/** Views into the piece of memory. */
export function* unpack({ digests, ends, bytes }: PackedPayloads): Iterable<StoredPayload> {
  let start = 0;
  for (const [index, digest] of digests.entries()) {
    const end = ends[index] ?? start;
    yield { digest, bytes: bytes.subarray(start, end) };
    start = end;
  }
}
