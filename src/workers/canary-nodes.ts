import type { SidedClient } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { isCanaryByRule } from '../rollout/canaries.ts';
import type { Moved } from '../rollout/fleet.ts';
import type { CanariesMessage } from './ipc-messages.ts';

/** Which nodes are canaries, as the primary said last. */
export class CanaryNodes {
  #rules: CanariesMessage['rules'];
  #named: ReadonlySet<string>;
  /** The classes for which the rules make canaries; undefined: all. */
  #open: ReadonlySet<string> | undefined;

  constructor({ rules, nodes, open }: CanariesMessage) {
    this.#rules = rules;
    this.#open = open && new Set(open);
    this.#named = new Set(nodes);
  }

  get rules(): CanariesMessage['rules'] {
    return this.#rules;
  }

  sideOf(client: SidedClient): Side {
    if (this.#named.has(client.nodeId)) return 'canary';
    const isOpen = this.#open?.has(client.classKey) !== false;
    return isOpen && isCanaryByRule(this.#rules, client) ? 'canary' : 'released';
  }

  /** Returns which clients may be on another side now; undefined: all may be. */
  update({ rules, nodes, open }: CanariesMessage): ((client: Moved) => boolean) | undefined {
    const sameRules = JSON.stringify(rules) === JSON.stringify(this.#rules);
    const named = this.#named.symmetricDifference(new Set(nodes));
    const before = this.#open;
    const now = open && new Set(open);
    this.#rules = rules;
    this.#named = new Set(nodes);
    this.#open = now;
    if (!sameRules) return undefined;
    return ({ nodeId, classKey }) =>
      named.has(nodeId) || (before?.has(classKey) === false && now?.has(classKey) !== false);
  }
}
