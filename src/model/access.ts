import type { TypeUrl } from './brand.ts';

/** What a class of peers may see. Peers with equal keys share views. */
export interface Access {
  readonly key: string;
  allows(type: TypeUrl, name: string): boolean;
  /** Nothing of this type (undefined: of any type) is allowed: the RPC fails rather than answer with nothing. */
  deniesAll(type: TypeUrl | undefined): boolean;
}
