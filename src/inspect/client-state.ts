import type { ListedType } from '../downstream/services.ts';
import type { ClientState, Holding, MissingEntry } from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import type { Relay } from '../relay.ts';

type IsServed = Pick<Relay, 'isServed'>;

const none: readonly never[] = [];

/** What a client asks for of a type, and gets nothing of. A type that nobody has a resource of is empty, not missing. */
export function missingOf({ info, subscription }: ListedType, relay: IsServed): readonly MissingEntry[] {
  const missing = subscription?.missing ?? none;
  if (missing.length === 0 || relay.isServed(info.url)) return missing;
  return missing.filter(({ canonical }) => canonical !== WILDCARD);
}

/** What a client made of a type, and whether it lacks something of it. */
export function stateOf(type: ListedType, relay: IsServed): ClientState {
  const state = type.subscription?.responses.state ?? 'NOT_SENT';
  return stateOfHolding({ state, missing: missingOf(type, relay).length > 0 });
}

/** The same of one name. */
export function stateOfHolding({ state, missing }: Pick<Holding, 'state' | 'missing'>): ClientState {
  return missing && (state === 'SYNCED' || state === 'NOT_SENT') ? 'MISSING' : state;
}
