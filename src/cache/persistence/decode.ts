import * as z from 'zod';
import {
  constraintsKey,
  type ResourceName,
  resourceName,
  revision,
  type TypeUrl,
  typeUrl,
} from '../../model/brand.ts';
import type { Change, ChangedName, Content, RecordedChanges } from '../../model/change.ts';
import type { Clock } from '../../model/clock.ts';
import { type Constraints, maxStampedDepth, parseConstraints } from '../../model/constraints.ts';
import { getOrMake } from '../../model/maps.ts';
import { internParameters, type Parameters } from '../../model/parameters.ts';
import { deltaVersionOf, hashOfDigest } from '../../model/payloads.ts';
import type { Payload, Variant } from '../../model/resource.ts';
import { attempt, fail, ok, type Result } from '../../model/result.ts';
import type { HeldVariant } from '../../model/rollout.ts';
import { covers } from '../../model/selection.ts';
import type { Holder, Interest, Selector } from '../../model/transaction.ts';
import type { InterestState } from '../interests.ts';
import type { Restored } from '../store.ts';
import type { Journal } from '../type-table.ts';
import type { Dirty } from './dirty.ts';
import type { Row, RowBatch } from './records.ts';

/** Key, upstream, role. */
const holder = z.tuple([z.string(), z.string(), z.enum(['wildcard', 'named'])]);

const variant = z.object({
  /** As received, in base64. */
  constraints: z.string(),
  /** Its digest; left out: it has no body. */
  payload: z.string().optional(),
  version: z.string(),
  responseVersion: z.string(),
  upstream: z.string(),
  since: z.number(),
  holders: z.array(holder),
  aliases: z.array(z.string()).optional(),
  /** Milliseconds as given, and when it runs out, in milliseconds since the epoch. */
  ttl: z.tuple([z.number(), z.number()]).optional(),
  metadata: z.string().optional(),
});

const resourceBody = z.object({
  variants: z.array(variant),
  /** The constraints of variants that must not be cached: what they are is not on disk, but that they were. */
  uncached: z.array(z.string()).optional(),
  /** Parameters' key, constraints' key. */
  bindings: z.array(z.tuple([z.string(), z.string()])).optional(),
});

const interestBody = z.object({ answered: z.boolean(), holder: holder.nullable() });
/** Selector, parameters' key. */
const interestKeyParts = z.tuple([z.string(), z.string()]);
const versionBody = z.object({ version: z.string() });
const changedNameBody = z.object({
  name: z.string(),
  change: z.enum(['ADDED', 'CHANGED', 'REMOVED']),
  bytes: z.number(),
  verdict: z.enum(['RELEASED', 'PENDING', 'REPLACED', 'DISCARDED']),
  /** Both are left out where no bodies are kept. */
  before: z.array(variant).optional(),
  after: z.array(variant).optional(),
});

const answers = z.object({ accepted: z.number(), rejected: z.number() });

const changeBody = z.object({
  at: z.number(),
  upstream: z.string(),
  added: z.number(),
  changed: z.number(),
  removed: z.number(),
  first: z.boolean(),
  releasedAt: z.number().optional(),
  canariesMs: z.number().optional(),
  clientsMs: z.number().optional(),
  canaries: answers.optional(),
  course: z.object({ wave: z.number(), waves: z.number(), cause: z.string().optional() }).optional(),
  answers: answers.optional(),
  reason: z.string(),
  names: z.array(changedNameBody),
});

const parameterEntries = z.array(z.tuple([z.string(), z.string()]));

export type HolderBody = z.output<typeof holder>;
export type VariantBody = z.output<typeof variant>;
export type ResourceBody = z.output<typeof resourceBody>;
export type InterestBody = z.output<typeof interestBody>;
export type VersionBody = z.output<typeof versionBody>;
export type ChangeBody = z.output<typeof changeBody>;

export interface RestoreContext {
  /** Whether what came from this upstream is still its own. */
  readonly keeps: (upstream: string) => boolean;
  /** The upstream that a selector is asked of. */
  readonly serves: (type: TypeUrl, selector: Selector) => string | undefined;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  /** Hears of rows that were not restored as they are: they have to be written again, or deleted. */
  readonly differs: Journal & Pick<Dirty, 'change'>;
}

/** A payload, whose bytes may be still to come. */
type PendingPayload = Pick<Payload, 'hash'> & { bytes: Uint8Array };

const pending = new Uint8Array(0);

/** A variant that was there and must not be cached. */
type UncachedVariant = Pick<Variant, 'type' | 'name' | 'constraints'>;

/** Makes of loaded rows what a store can restore. */
export class Decoder {
  readonly #reading: RestoreContext;
  /** By digest. Those that rows refer to are filled as they come. */
  readonly #payloads = new Map<string, PendingPayload>();
  readonly #resources: Restored['resources'][number][] = [];
  /** Rows that are read when all resources are known. */
  readonly #later: Row[] = [];
  #problem: string | undefined;
  readonly #holders = new Map<string, Holder>();
  readonly #restoredHolders = new Map<string, Holder>();
  readonly #uncached: UncachedVariant[] = [];

  constructor(reading: RestoreContext) {
    this.#reading = reading;
  }

  take({ rows, payloads }: RowBatch): void {
    this.#try(() => {
      for (const row of rows) {
        if (row.kind === 'resource') this.#resource(row);
        else this.#later.push(row);
      }
      for (const { digest, bytes } of payloads) this.#slot(digest).bytes = bytes;
    });
  }

  /** The digests of all payloads. */
  get payloads(): Iterable<string> {
    return this.#payloads.keys();
  }

  /** The error says that it is not what `encode` wrote. */
  finish(): Result<Restored & Pick<RecordedChanges, 'changes'>> {
    const interests: InterestState[] = [];
    const versions: Restored['versions'][number][] = [];
    const changes: Change[] = [];
    this.#try(() => {
      for (const row of this.#later) if (row.kind === 'interest') interests.push(...this.#interest(row));
      for (const row of this.#later) if (row.kind === 'version') versions.push(...this.#version(row));
      for (const row of this.#later) if (row.kind === 'change') changes.push(this.#change(row));
    });
    if (this.#problem !== undefined) return fail(this.#problem);
    if (this.#payloads.values().some(({ bytes }) => bytes === pending)) return fail('a payload is missing');
    changes.sort((a, b) => a.revision - b.revision);
    return ok({ resources: this.#resources, interests, versions, changes });
  }

  #try(read: () => void): void {
    if (this.#problem !== undefined) return;
    const tried = attempt(read, String);
    if (!tried.ok) this.#problem = tried.error;
  }

  #resource(row: Row): void {
    const { keeps, clock, differs } = this.#reading;
    const type = typeUrl(row.type);
    const name = resourceName(row.key);
    const body = resourceBody.parse(JSON.parse(row.body ?? ''));
    for (const constraints of body.uncached ?? [])
      this.#uncached.push({ type, name, constraints: readConstraints(constraints) });
    const variants: HeldVariant[] = [];
    let whole = body.uncached === undefined;
    for (const variant of body.variants) {
      const holders = variant.holders
        .filter(([, upstream]) => keeps(upstream))
        .map((holder) => this.#holder(holder, true));
      if (holders.length < variant.holders.length) whole = false;
      if (holders.length === 0) continue;
      if (variant.ttl !== undefined && variant.ttl[1] <= clock.now()) whole = false;
      else variants.push({ variant: this.#variant(type, name, variant), holders });
    }
    if (!whole) differs.resource(type, name);
    if (variants.length === 0) return;
    const bindings = (body.bindings ?? []).map(
      ([parameters, variant]) => [readParameters(parameters), constraintsKey(variant)] as const,
    );
    this.#resources.push({ type, name, variants, bindings });
  }

  #variant(type: TypeUrl, name: ResourceName, body: VariantBody): Variant {
    const { version, responseVersion, upstream, since: cachedSince, aliases = [], ttl } = body;
    const constraints = readConstraints(body.constraints);
    const payload = body.payload === undefined ? undefined : this.#slot(body.payload);
    const metadata = body.metadata === undefined ? undefined : Buffer.from(body.metadata, 'base64');
    return {
      type,
      name,
      constraints,
      payload,
      version,
      deltaVersion: deltaVersionOf(version, constraints, payload, aliases, metadata),
      responseVersion,
      upstream,
      cachedSince,
      aliases,
      ttl: ttl && this.#ttl(ttl),
      metadata,
      doNotCache: false,
      revision: revision(0),
    };
  }

  /** On disk it ends by the wall clock, which may have been set since: it has never more left than it was given. */
  #ttl([milliseconds, endsAt]: NonNullable<VariantBody['ttl']>): Variant['ttl'] {
    const { clock } = this.#reading;
    return { milliseconds, deadline: clock.monotonic() + Math.min(milliseconds, endsAt - clock.now()) };
  }

  #interest(row: Row): InterestState[] {
    const { keeps, serves, differs } = this.#reading;
    const type = typeUrl(row.type);
    const [selector, key] = interestKeyParts.parse(JSON.parse(row.key));
    const interest: Interest = { type, selector: resourceName(selector), parameters: readParameters(key) };
    const upstream = serves(type, interest.selector);
    if (upstream === undefined || !keeps(upstream)) {
      differs.interest(interest);
      return [];
    }
    const body = interestBody.parse(JSON.parse(row.body ?? ''));
    const resolved = body.answered && !this.#uncached.some((gap) => sees(interest, gap));
    if (resolved !== body.answered) differs.interest(interest);
    const holder = body.holder === null ? undefined : this.#holder(body.holder, false);
    return [{ interest, answer: resolved ? 'restored' : undefined, holder }];
  }

  /** Only of holders that something restored is from. */
  #version(row: Row): Restored['versions'] {
    const type = typeUrl(row.type);
    const { version } = versionBody.parse(JSON.parse(row.body ?? ''));
    if (this.#holders.has(row.key) || this.#restoredHolders.has(row.key))
      return [{ type, holder: row.key, version }];
    this.#reading.differs.version(type, row.key);
    return [];
  }

  /** As it was written. What waited for canaries waits no more: upstream says it again. */
  #change(row: Row): Change {
    const { names, releasedAt, ...change } = changeBody.parse(JSON.parse(row.body ?? ''));
    const type = typeUrl(row.type);
    // What an operator has made has the content of upstreams too.
    const keeps = names.every(({ before = [], after = [] }) =>
      [...before, ...after].every(({ upstream }) => this.#reading.keeps(upstream)),
    );
    if (!keeps) this.#reading.differs.change(type, Number(row.key));
    return {
      ...change,
      revision: Number(row.key),
      type,
      releasedAt,
      names: names.map((name) => this.#changedName(type, name, keeps)),
    };
  }

  #changedName(
    type: TypeUrl,
    { name: text, change, bytes, verdict: written, before, after }: ChangeBody['names'][number],
    keeps: boolean,
  ): ChangedName {
    const name = resourceName(text);
    const verdict = written === 'PENDING' ? 'REPLACED' : written;
    const contentOf = (bodies: readonly VariantBody[]): Content =>
      bodies.map((body) => {
        const holders = body.holders.map((holder) => this.#holder(holder, false));
        return { variant: this.#variant(type, name, body), holders };
      });
    const content =
      keeps && before !== undefined && after !== undefined
        ? { before: contentOf(before), after: contentOf(after) }
        : undefined;
    return { name, change, bytes, verdict, content };
  }

  #slot(digest: string): PendingPayload {
    return getOrMake(this.#payloads, digest, () => ({ hash: hashOfDigest(digest), bytes: pending }));
  }

  /** One object for each, with its version's. */
  #holder([key, upstream, role]: HolderBody, restored: boolean): Holder {
    const holders = restored ? this.#restoredHolders : this.#holders;
    return getOrMake(holders, key, () => ({ key, upstream, role, ...(restored ? { restored } : {}) }));
  }
}

function readConstraints(base64: string): Constraints {
  const constraints = parseConstraints(Buffer.from(base64, 'base64'), maxStampedDepth);
  if (!constraints.ok) throw new Error(constraints.error);
  return constraints.value;
}

function readParameters(key: string): Parameters {
  return internParameters(key === '' ? [] : parameterEntries.parse(JSON.parse(key)));
}

function sees({ type, selector, parameters }: Interest, gap: UncachedVariant): boolean {
  return type === gap.type && covers(selector, gap.name) && gap.constraints.matches(parameters);
}
