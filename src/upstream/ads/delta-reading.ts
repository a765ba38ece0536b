import { ok, type Result } from '../../model/result.ts';
import type { Put, ResourceError } from '../../model/transaction.ts';
import type { InTurns } from '../../model/turns.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { IncomingDelta } from '../../wire/response-reader.ts';
import type { Identity } from './accept-resource.ts';
import { SeenVariants, variantKey } from './acked-resources.ts';
import type { ResponseParts } from './response-parts.ts';

/** What a delta response says: all of it judged, nothing of it done yet. */
export interface DeltaReading {
  readonly puts: readonly Put[];
  /** `removed_resources`: whatever is known under this name and has no constraints. */
  readonly removed: readonly Identity[];
  /** `removed_resource_names`: exactly these. */
  readonly removedVariants: readonly Identity[];
  readonly resourceErrors: readonly ResourceError[];
}

/** Judges a response. The error is the reason for a NACK. */
export function* readDelta(parts: ResponseParts, response: IncomingDelta): InTurns<Result<DeltaReading>> {
  const seen = { bodies: new SeenVariants(), removals: new SeenVariants() };
  const puts = yield* parts.resources(response.resources, 0, response.resources.length, seen.bodies);
  if (!puts.ok) return puts;
  // The names first: a removal by name alone may mean more than one without constraints does.
  const removed = yield* parts.removed(response.removed, seen);
  if (!removed.ok) return removed;
  const removedVariants = yield* parts.removedNames(response.removedNames, seen);
  if (!removedVariants.ok) return removedVariants;
  const resourceErrors = yield* parts.errors(response.errors);
  if (!resourceErrors.ok) return resourceErrors;
  return ok({
    puts: puts.value,
    removed: removed.value,
    removedVariants: removedVariants.value,
    resourceErrors: resourceErrors.value,
  });
}

export function isEmpty({ puts, removed, removedVariants, resourceErrors }: DeltaReading): boolean {
  return puts.length + removed.length + removedVariants.length + resourceErrors.length === 0;
}

/** In delta NOT_FOUND is a removal (protocol §8): one of those that are not said already, in this way or the other. */
export function* notFound({ removed, removedVariants, resourceErrors }: DeltaReading): Iterable<Identity> {
  if (resourceErrors.length === 0) return;
  const names = new Set(removed.map(({ name }) => name));
  const said = new Set(removedVariants.map(variantKey));
  for (const error of resourceErrors) {
    const key = variantKey(error);
    if (error.code !== Code.NOT_FOUND || names.has(error.name) || said.has(key)) continue;
    said.add(key);
    yield error;
  }
}
