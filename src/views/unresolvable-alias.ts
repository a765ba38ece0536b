import { resourceName } from '../model/brand.ts';
import type { OutgoingResource } from '../wire/responses.ts';
import type { Item } from './item.ts';
import type { View } from './view.ts';
import { withoutBody } from './without-body.ts';

/**
 * What a VHDS client gets for a name that does not exist. Envoy holds a request until a resource with this alias comes,
 * and lets it go if the resource has no body (protocol §4.8).
 */
export function unresolvableAlias({ type }: View, { spelling }: Item): OutgoingResource {
  return {
    variant: withoutBody(type, resourceName(spelling), [spelling]),
    name: spelling,
    constrained: false,
    wrapped: false,
    ttl: undefined,
    bodiless: true,
  };
}
