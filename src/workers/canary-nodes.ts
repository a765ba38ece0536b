import type { SidedClient } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { isCanaryByRule } from '../rollout/canary-choice.ts';
import type { CanariesMessage } from './ipc-messages.ts';

/** Which nodes are canaries, as the primary said last. */
export class CanaryNodes {
  #rules: CanariesMessage['rules'];
  #named: ReadonlySet<string>;

  constructor({ rules, nodes }: CanariesMessage) {
    this.#rules = rules;
    this.#named = new Set(nodes);
  }

  get rules(): CanariesMessage['rules'] {
    return this.#rules;
  }

  sideOf(client: SidedClient): Side {
    return this.#named.has(client.nodeId) || isCanaryByRule(this.#rules, client) ? 'canary' : 'released';
  }

  /** Returns the nodes that may be on another side now; undefined: all may be. */
  update({ rules, nodes }: CanariesMessage): ReadonlySet<string> | undefined {
    const sameRules = JSON.stringify(rules) === JSON.stringify(this.#rules);
    const before = this.#named;
    this.#rules = rules;
    this.#named = new Set(nodes);
    return sameRules ? this.#named.symmetricDifference(before) : undefined;
  }
}
