import type { Payload } from '../../model/resource.ts';
import type { Holder } from '../../model/transaction.ts';
import type { HolderBody, InterestBody, ResourceBody, VariantBody, VersionBody } from './bodies.ts';
import { Packer } from './packing.ts';
import type { Row, RowBatch } from './records.ts';
import type { ResourceNow, Snapshot, SnapshotEntry } from './snapshot.ts';

/** How much goes from thread to thread at once: little, as it is copied on the thread that serves. */
const partRows = 500;
const partBytes = 1024 * 1024;

/** Which payloads are on disk, and under which number. */
export class PayloadIds {
  readonly #ids = new WeakMap<Payload, number>();
  readonly #written = new Set<number>();
  #last = 0;
  /** Of the transaction under way. */
  #fresh: number[] = [];

  of(payload: Payload): number {
    const known = this.#ids.get(payload);
    if (known !== undefined) return known;
    const id = ++this.#last;
    this.#ids.set(payload, id);
    return id;
  }

  /** True the first time: it has to be sent along. */
  send(id: number): boolean {
    if (this.#written.has(id)) return false;
    this.#written.add(id);
    this.#fresh.push(id);
    return true;
  }

  /** Loaded from disk under this number. */
  loaded(id: number): void {
    this.#written.add(id);
    this.#last = Math.max(this.#last, id);
  }

  committed(dropped: readonly number[]): void {
    this.#fresh = [];
    for (const id of dropped) this.#written.delete(id);
  }

  rolledBack(): void {
    for (const id of this.#fresh) this.#written.delete(id);
    this.#fresh = [];
  }
}

/** A snapshot as rows, in parts. */
export function* encode(snapshot: Snapshot, ids: PayloadIds): Iterable<RowBatch> {
  let rows: Row[] = [];
  const packer = new Packer();
  for (const entry of snapshot) {
    for (const payload of payloadsOf(entry)) {
      const id = ids.of(payload);
      if (!ids.send(id)) continue;
      packer.add({ id, hash: payload.hash, bytes: payload.bytes });
    }
    rows.push(rowOf(entry, ids));
    if (rows.length < partRows && packer.size < partBytes) continue;
    yield { rows, payloads: packer.take() };
    rows = [];
  }
  if (rows.length > 0) yield { rows, payloads: packer.take() };
}

function payloadsOf(entry: SnapshotEntry): Payload[] {
  if (entry.kind !== 'resource') return [];
  return (entry.resource?.variants ?? []).flatMap(({ variant }) =>
    variant.doNotCache || variant.payload === undefined ? [] : [variant.payload],
  );
}

function rowOf(entry: SnapshotEntry, ids: PayloadIds): Row {
  const { kind, type, key } = entry;
  return {
    kind,
    type,
    key,
    body: bodyOf(entry),
    payloads: [...new Set(payloadsOf(entry))].map((one) => ids.of(one)),
  };
}

function bodyOf(entry: SnapshotEntry): string | undefined {
  switch (entry.kind) {
    case 'resource':
      return entry.resource === undefined ? undefined : JSON.stringify(resourceBody(entry, entry.resource));
    case 'interest': {
      if (entry.state === undefined) return undefined;
      const { resolved, holder } = entry.state;
      return JSON.stringify({
        answered: resolved,
        holder: holder === undefined ? null : holderBody(holder),
      } satisfies InterestBody);
    }
    case 'version':
      return entry.version === undefined
        ? undefined
        : JSON.stringify({ version: entry.version } satisfies VersionBody);
    default:
      return entry satisfies never;
  }
}

function resourceBody(entry: SnapshotEntry, { variants, bindings }: ResourceNow): ResourceBody {
  const payloads = [...new Set(payloadsOf(entry))];
  const kept: VariantBody[] = [];
  const uncached: string[] = [];
  for (const { variant, holders } of variants) {
    const constraints = base64(variant.constraints.bytes);
    if (variant.doNotCache) {
      uncached.push(constraints);
      continue;
    }
    const { version, responseVersion, upstream, cachedSince, aliases, ttl, metadata, payload } = variant;
    kept.push({
      constraints,
      payload: payload === undefined ? -1 : payloads.indexOf(payload),
      version,
      responseVersion,
      upstream,
      since: cachedSince,
      holders: holders.map(holderBody),
      ...(aliases.length === 0 ? {} : { aliases: [...aliases] }),
      ...(ttl === undefined ? {} : { ttl: [ttl.milliseconds, ttl.deadline] }),
      ...(metadata === undefined ? {} : { metadata: base64(metadata) }),
    });
  }
  return {
    variants: kept,
    ...(uncached.length === 0 ? {} : { uncached }),
    ...(bindings.length === 0
      ? {}
      : { bindings: bindings.map(([parameters, variant]) => [parameters, variant]) }),
  };
}

function holderBody({ key, upstream, role }: Holder): HolderBody {
  return [key, upstream, role];
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}
