import { clusterFacts } from '../model/cluster.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import { type Reference, reference } from '../model/resource.ts';
import { itemId } from '../model/selection.ts';
import { type ResendItems, type Response, resendItems } from '../model/subscription.ts';
import { referencesOf } from '../wire/references.ts';

/** What follows from the clusters of a CDS response. Computed once for all that get it. */
export interface ClusterConsequences {
  /**
   * The EDS items that they call for: Envoy warms a changed cluster anew and waits for its endpoints, and in delta does
   * not ask for them (protocol §10.1).
   */
  readonly edsToResend: ResendItems;
  /** A client takes some time until it can use some of them: they need endpoints, addresses or a health check first. */
  readonly warming: boolean;
  /** The endpoints and secrets that they need for that. */
  readonly needed: readonly Reference[];
}

const known = new WeakMap<Response, ClusterConsequences>();

/** `response` has at least one changed cluster. */
export function consequencesOf(response: Response): ClusterConsequences {
  const before = known.get(response);
  if (before !== undefined) return before;
  const facts = response.changed.map(clusterFacts);
  const items = new Set(facts.map(({ service }) => itemId(false, NO_PARAMETERS, service)));
  const consequences = {
    edsToResend: resendItems(items),
    warming: facts.some(({ warms }) => warms),
    needed: [
      ...facts.filter(({ hasEds }) => hasEds).map(({ service }) => reference('eds', service)),
      ...response.changed.flatMap((one) => [...referencesOf(one)].filter((to) => to.startsWith('sds '))),
    ],
  };
  known.set(response, consequences);
  return consequences;
}
