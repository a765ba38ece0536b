import type { Revision, TypeUrl } from '../model/brand.ts';
import { clusterFacts } from '../model/cluster.ts';
import { isCollection } from '../model/selection.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { TypeTable } from './type-table.ts';

/**
 * Endpoints to which no cluster leads any more. A control plane over SotW cannot say that they are gone: it only stops to
 * send them. What nobody subscribes to and no cluster leads to is kept no longer than what is absent.
 */
export class LeftEndpoints {
  #names: ReadonlySet<string> | undefined;
  /** Of `#names`. */
  #revision: Revision | undefined;

  /**
   * False also where it is not known: clients with these parameters do not have all clusters from here, or some cluster is
   * of an extension, which may name its endpoints in its own way.
   */
  isLeft({ type, selector, parameters }: Interest, clusters: TypeTable, revision: Revision): boolean {
    if (isCollection(selector) || clusters.interests.get(WILDCARD, parameters)?.resolved !== true)
      return false;
    if (this.#revision !== revision) this.#names = namesIn(clusters, type);
    this.#revision = revision;
    return this.#names?.has(selector) === false;
  }
}

export const haveClusters = (type: TypeUrl): boolean => typeInfo(type).short === 'eds';

/** Of all variants. Undefined: not all of them can be known. */
function namesIn(clusters: TypeTable, type: TypeUrl): ReadonlySet<string> | undefined {
  const names = new Set<string>();
  for (const { variants } of clusters.resources.values()) {
    for (const { variant } of variants.values()) {
      const { service, extended } = clusterFacts(variant);
      if (extended) return undefined;
      const canonical = canonicalName(service, type);
      names.add(canonical.ok ? canonical.value : service);
    }
  }
  return names;
}
