import { z } from 'zod';

/** What makes an upstream the one that something came from. */
export interface UpstreamIdentity {
  readonly name: string;
  /** Everything that decides what it delivers and what it is asked for, in any form: another text, another upstream. */
  readonly text: string;
  /** Where it is. Upstreams with one of these in common are the same, because all endpoints serve the same. */
  readonly places: readonly string[];
}

/** An upstream at the time of a write. */
const upstreamState = z.object({
  name: z.string(),
  text: z.string(),
  places: z.array(z.string()),
  /** Milliseconds since the epoch; undefined: it was current. */
  staleSince: z.number().optional(),
});

/** What is written beside the rows, in the same transaction. */
const diskState = z.object({
  /** When it was written, in milliseconds since the epoch: then the relay was alive. */
  at: z.number(),
  upstreams: z.array(upstreamState),
  /** Of the last change that was recorded. */
  revision: z.number().default(0),
});

export type DiskState = z.output<typeof diskState>;

/** Undefined: not what this version writes. */
export function readState(text: string): DiskState | undefined {
  try {
    return diskState.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** Why persisted resources of an upstream are not restored; undefined: they are. */
export function whyNotRestored(
  before: UpstreamIdentity | undefined,
  now: UpstreamIdentity,
): string | undefined {
  if (before === undefined) return 'it is a new upstream';
  if (before.text !== now.text) return 'what decides its content has changed';
  if (!before.places.some((place) => now.places.includes(place)))
    return 'it has none of its earlier endpoints or paths';
  return undefined;
}
