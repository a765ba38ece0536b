import { parseConfig } from '../../src/config/load.ts';
import type { Policy } from './policy.ts';
import { isPattern } from './reference.ts';

/** The policy without the names that validation refuses: those, and no others. */
export function accepted(policy: Policy): Policy {
  const bad = policy.rules.flatMap(({ names = [] }) => names.filter((name) => !isPattern(name)));
  if (bad.length === 0) return policy;
  const read = configOf(policy);
  if (read.ok) throw new Error(`a rule is accepted that cannot hold in every spelling: ${bad.join()}`);
  if (read.error.length !== bad.length) {
    throw new Error(`of ${bad.join()} validation refuses ${read.error.map(({ message }) => message).join()}`);
  }
  const rules = policy.rules.map((rule) => {
    const { names, ...rest } = rule;
    const good = names?.filter(isPattern);
    // A list must not be empty, and without one the rule would be for every name.
    return good === undefined ? rule : { ...rest, names: good.length > 0 ? good : ['no such name'] };
  });
  return { ...policy, rules };
}

export function configOf({ rules, parameters }: Policy) {
  const xds = { authorization: { rules } };
  const upstreams = [{ name: 'script', filesystem: { path: '.' } }];
  return parseConfig(JSON.stringify({ upstreams, xds, parameters }), 'relay.json', {});
}
