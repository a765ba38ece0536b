import type { ClientContext } from '../downstream/services.ts';
import { contentHash } from '../model/content-hash.ts';
import type { Parameters } from '../model/parameters.ts';

/** A class of clients, as operators see it. */
export interface ClientClassId {
  /** The same in every process. */
  readonly id: string;
  readonly parameters: Parameters;
  readonly restricted: boolean;
}

/** Contexts live as long as their streams, and few change: the hash is made once. */
const known = new WeakMap<ClientContext, ClientClassId>();

export function classOf(client: ClientContext): ClientClassId {
  const found = known.get(client);
  if (found !== undefined) return found;
  const created = {
    id: contentHash(client.classKey),
    parameters: client.derived(undefined),
    restricted: !client.access.unrestricted,
  };
  known.set(client, created);
  return created;
}
