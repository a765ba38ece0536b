import type { Change, ChangedName, Content } from '../../model/change.ts';
import { contentDigest } from '../../model/content-hash.ts';
import type { Payload, Variant } from '../../model/resource.ts';
import type { HeldVariant } from '../../model/rollout.ts';
import type { Holder } from '../../model/transaction.ts';
import type {
  ChangeBody,
  HolderBody,
  InterestBody,
  ResourceBody,
  VariantBody,
  VersionBody,
} from './decode.ts';
import { Packer, type Row, type RowBatch } from './records.ts';
import type { ResourceNow, Snapshot, SnapshotEntry } from './snapshot.ts';

/** How much goes from thread to thread at once: little, as it is copied on the thread that serves. */
const partRows = 500;
const partBytes = 1024 * 1024;

/** Which payloads are on disk, by their digests. */
export class StoredPayloads {
  readonly #digests = new Set<string>();
  /** Of the transaction under way. */
  #added: string[] = [];

  /** True the first time: it has to be sent along. */
  add(digest: string): boolean {
    if (this.#digests.has(digest)) return false;
    this.#digests.add(digest);
    this.#added.push(digest);
    return true;
  }

  loaded(digests: Iterable<string>): void {
    for (const digest of digests) this.#digests.add(digest);
  }

  committed(dropped: readonly string[]): void {
    this.#added = [];
    for (const digest of dropped) this.#digests.delete(digest);
  }

  rolledBack(): void {
    this.committed(this.#added);
  }
}

/** A snapshot as rows, in parts. A payload comes with or before the first row that refers to it. */
export function* encode(snapshot: Snapshot, stored: StoredPayloads): Iterable<RowBatch> {
  let rows: Row[] = [];
  const packer = new Packer();
  for (const entry of snapshot) {
    const payloads = payloadsOf(entry);
    for (const [digest, { bytes }] of payloads) if (stored.add(digest)) packer.add({ digest, bytes });
    const { kind, type, key } = entry;
    rows.push({ kind, type, key, body: bodyOf(entry), payloads: [...payloads.keys()] });
    if (rows.length < partRows && packer.size < partBytes) continue;
    yield { rows, payloads: packer.take() };
    rows = [];
  }
  if (rows.length > 0) yield { rows, payloads: packer.take() };
}

/** By digest. */
function payloadsOf(entry: SnapshotEntry): Map<string, Payload> {
  const payloads = new Map<string, Payload>();
  for (const { variant } of variantsIn(entry)) {
    if (!variant.doNotCache && variant.payload !== undefined)
      payloads.set(digestOf(variant.payload), variant.payload);
  }
  return payloads;
}

function* variantsIn(entry: SnapshotEntry): Iterable<HeldVariant> {
  if (entry.kind === 'resource') yield* entry.resource?.variants ?? [];
  if (entry.kind !== 'change') return;
  for (const { content } of entry.change?.names ?? []) {
    if (content === undefined) continue;
    yield* content.before;
    yield* content.after;
  }
}

const digests = new WeakMap<Payload, string>();

function digestOf(payload: Payload): string {
  const digest = digests.get(payload) ?? contentDigest(payload.bytes);
  digests.set(payload, digest);
  return digest;
}

function bodyOf(entry: SnapshotEntry): string | undefined {
  switch (entry.kind) {
    case 'resource':
      return entry.resource === undefined ? undefined : JSON.stringify(resourceBody(entry.resource));
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
    case 'change':
      return entry.change === undefined ? undefined : JSON.stringify(changeBody(entry.change));
    default:
      return entry satisfies never;
  }
}

function resourceBody({ variants, bindings }: ResourceNow): ResourceBody {
  const cached: VariantBody[] = [];
  const uncached: string[] = [];
  for (const { variant, holders } of variants) {
    const constraints = base64(variant.constraints.bytes);
    if (variant.doNotCache) {
      uncached.push(constraints);
      continue;
    }
    cached.push(variantBody(variant, holders));
  }
  return {
    variants: cached,
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

/** The content of names that must not be cached is left out, as if their bodies were not kept. */
function changeBody({ revision: _revision, type: _type, names, ...change }: Change): ChangeBody {
  return { ...change, names: names.map(changedNameBody) };
}

function changedNameBody({
  name,
  change,
  bytes,
  verdict,
  content,
}: ChangedName): ChangeBody['names'][number] {
  const common = { name, change, bytes, verdict };
  if (content === undefined) return common;
  const all = [...content.before, ...content.after];
  if (all.some(({ variant }) => variant.doNotCache)) return common;
  const bodies = (list: Content): VariantBody[] =>
    list.map(({ variant, holders }) => variantBody(variant, holders));
  return { ...common, before: bodies(content.before), after: bodies(content.after) };
}

function variantBody(variant: Variant, holders: readonly Holder[]): VariantBody {
  const { version, responseVersion, upstream, cachedSince, aliases, ttl, metadata, payload } = variant;
  return {
    constraints: base64(variant.constraints.bytes),
    version,
    responseVersion,
    upstream,
    since: cachedSince,
    holders: holders.map(holderBody),
    ...(payload === undefined ? {} : { payload: digestOf(payload) }),
    ...(aliases.length === 0 ? {} : { aliases: [...aliases] }),
    ...(ttl === undefined ? {} : { ttl: [ttl.milliseconds, ttl.deadline] }),
    ...(metadata === undefined ? {} : { metadata: base64(metadata) }),
  };
}
