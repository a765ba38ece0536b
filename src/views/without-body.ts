import { type ResourceName, revision, type TypeUrl } from '../model/brand.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import type { Variant } from '../model/resource.ts';

/** A resource of which nothing but its name is known. */
export const withoutBody = (type: TypeUrl, name: ResourceName, aliases: readonly string[] = []): Variant => ({
  type,
  name,
  constraints: UNCONSTRAINED,
  version: '',
  deltaVersion: '',
  payload: undefined,
  aliases,
  ttl: undefined,
  doNotCache: false,
  metadata: undefined,
  responseVersion: '',
  upstream: '',
  cachedSince: 0,
  revision: revision(0),
});
