import type { TypeUrl } from './brand.ts';
import type { Parameters } from './parameters.ts';
import type { Variant } from './resource.ts';

/** What a class of peers may see. */
export interface Access {
  /** Peers with equal keys share views. */
  readonly key: string;
  /** Everything is allowed. */
  readonly unrestricted: boolean;
  /** Which state of the cache they see (docs/adr/0100). */
  readonly cohort: Cohort;
  /** Whether a client may ask for this name, in canonical spelling. */
  allows(type: TypeUrl, name: string): boolean;
  /** Whether a client may get this resource for what it asks with these parameters, by whatever name. */
  admits(
    resource: Pick<Variant, 'type' | 'name' | 'aliases' | 'constraints'>,
    parameters: Parameters,
  ): boolean;
  /** Nothing of this type (undefined: of any type) is allowed. The RPC fails then, instead of an empty answer. */
  deniesEverything(type: TypeUrl | undefined): boolean;
}

/** Which state a client sees: what all clients have, or what upstream says now. */
export type Cohort = 'released' | 'canary';
