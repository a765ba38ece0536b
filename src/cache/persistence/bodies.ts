import { z } from 'zod';

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
  /** Milliseconds as given, and when it runs out. */
  ttl: z.tuple([z.number(), z.number()]).optional(),
  metadata: z.string().optional(),
});

export const resourceBody = z.object({
  variants: z.array(variant),
  /** The constraints of variants that must not be cached: what they are is not on disk, but that they were. */
  uncached: z.array(z.string()).optional(),
  /** Parameters' key, constraints' key. */
  bindings: z.array(z.tuple([z.string(), z.string()])).optional(),
});

export const interestBody = z.object({ answered: z.boolean(), holder: holder.nullable() });
/** Selector, parameters' key. */
export const interestKeyParts = z.tuple([z.string(), z.string()]);
export const versionBody = z.object({ version: z.string() });
const changedName = z.object({
  name: z.string(),
  change: z.enum(['ADDED', 'CHANGED', 'REMOVED']),
  bytes: z.number(),
  verdict: z.enum(['RELEASED', 'PENDING', 'REPLACED', 'DISCARDED']),
  /** Both are left out where no bodies are kept. */
  before: z.array(variant).optional(),
  after: z.array(variant).optional(),
});

export const changeBody = z.object({
  at: z.number(),
  upstream: z.string(),
  added: z.number(),
  changed: z.number(),
  removed: z.number(),
  first: z.boolean(),
  releasedAt: z.number().optional(),
  canariesMs: z.number().optional(),
  clientsMs: z.number().optional(),
  reason: z.string(),
  names: z.array(changedName),
});

export const parameterEntries = z.array(z.tuple([z.string(), z.string()]));

export type HolderBody = z.output<typeof holder>;
export type VariantBody = z.output<typeof variant>;
export type ResourceBody = z.output<typeof resourceBody>;
export type InterestBody = z.output<typeof interestBody>;
export type VersionBody = z.output<typeof versionBody>;
export type ChangeBody = z.output<typeof changeBody>;
