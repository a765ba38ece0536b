import { resourceName, revision } from '../model/brand.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import type { OutgoingResource } from '../wire/responses.ts';
import type { Item } from './item.ts';
import type { View } from './view.ts';

/**
 * What a VHDS client gets for a name that does not exist. Envoy holds a request until a resource with this alias comes,
 * and lets it go if the resource has no body (protocol §4.8).
 */
export function unresolvableAlias({ type }: View, { spelling }: Item): OutgoingResource {
  return {
    variant: {
      type,
      name: resourceName(spelling),
      constraints: UNCONSTRAINED,
      version: '',
      deltaVersion: '',
      payload: undefined,
      aliases: [spelling],
      ttl: undefined,
      doNotCache: false,
      metadata: undefined,
      responseVersion: '',
      upstream: '',
      cachedSince: 0,
      revision: revision(0),
    },
    name: spelling,
    constrained: false,
    wrapped: false,
    ttl: undefined,
    bodiless: true,
  };
}
