import { create, toBinary } from '@bufbuild/protobuf';
import { ClientRules } from '../../src/assembly/clients.ts';
import { parseConfig } from '../../src/config/load.ts';
import {
  type DynamicParameterConstraints,
  DynamicParameterConstraintsSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { ResourceName } from '../../src/model/brand.ts';
import { parseConstraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { type Interest, type Put, WILDCARD } from '../../src/model/transaction.ts';
import { canonicalName } from '../../src/model/xdstp.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import type { Tally } from '../simulator/tally.ts';
import { Lab, namedHolder, put, type, wildcardHolder } from '../support/lab.ts';
import { type Condition, type Policy, type Resource, type Type, types } from './policy.ts';
import { concerns, holds, identityOf, isPattern } from './reference.ts';

/** A resource as it was at one time; its content and versions bear its number. */
export interface Snapshot extends Resource {
  readonly number: number;
}

export interface WorldOptions {
  /** WITH_CONSTRAINTS. */
  readonly constrained: boolean;
  /** CONTENT. */
  readonly contentVersions: boolean;
}

/** The relay of a case, with its rules and the control plane above it. */
export class World {
  readonly lab: Lab;
  /** As the rules are now, without what validation refused. */
  policy: Policy;
  /** What the control plane has, by type, name and condition. */
  readonly current = new Map<string, Snapshot>();
  readonly snapshots: Snapshot[] = [];
  /** Names that errors were about, by the number in their message. */
  readonly errors: { readonly type: Type; readonly name: string }[] = [];
  readonly constrained: boolean;
  /** How often what has happened. */
  readonly tally: Tally;
  #rules: ClientRules;
  #version = 0;

  constructor(policy: Policy, tally: Tally, options: WorldOptions) {
    this.tally = tally;
    this.constrained = options.constrained;
    this.policy = this.#accepted(policy);
    this.#rules = rulesOf(this.policy);
    this.lab = new Lab({ ...options, clients: () => this.#rules });
  }

  reload(policy: Policy): void {
    this.policy = this.#accepted(policy);
    this.#rules = rulesOf(this.policy);
    this.tally.count('reload');
    this.lab.relay.server.reidentify();
    this.lab.settle();
  }

  #accepted(policy: Policy): Policy {
    const good = accepted(policy);
    if (good !== policy) this.tally.count('rule refused by validation');
    return good;
  }

  put(resource: Resource): void {
    const snapshot = { ...resource, number: this.snapshots.length };
    this.snapshots.push(snapshot);
    this.current.set(keyOf(resource), snapshot);
  }

  remove(at: number): void {
    const key = [...this.current.keys()][at];
    if (key !== undefined) this.current.delete(key);
  }

  /** An error about a name. It may exist: then it is an error that does not say that it does not. */
  error(short: Type, name: string, code: 5 | 14): void {
    const exists = [...this.current.values()].some(
      (one) => one.type === short && concerns({ name }, { ...one, collected: false }),
    );
    if (exists && code === 5) return;
    const message = `f${this.errors.length};`;
    this.errors.push({ type: short, name });
    const status = encodeStatus(code, message);
    const fault = { name: canonical(short, name), constraints: UNCONSTRAINED, code, message, status };
    this.lab.says({ type: type(short), holder: namedHolder, faults: [fault], settled: [] });
  }

  /** The control plane answers whatever is asked of it. */
  answer(): void {
    for (const short of types) {
      const asked = [...this.lab.upstream.interests].filter((interest) => interest.type === type(short));
      const wild = asked.filter(({ selector }) => selector === WILDCARD);
      const named = asked.filter(({ selector }) => selector !== WILDCARD);
      for (const [holder, interests] of [
        [wildcardHolder, wild],
        [namedHolder, named],
      ] as const) {
        if (interests.length === 0) continue;
        const puts = [...this.current.values()].filter(
          (one) => one.type === short && isAsked(one, interests),
        );
        this.lab.says({
          type: type(short),
          holder,
          puts: puts.map(putOf),
          complete: true,
          settled: interests,
          version: `R${++this.#version}`,
        });
      }
    }
  }
}

const isAsked = (one: Snapshot, interests: readonly Interest[]): boolean =>
  interests.some(
    ({ selector, parameters }) =>
      concerns({ name: selector }, one) && holds(one.condition, parameters.entries),
  );

const keyOf = ({ type: short, name, condition }: Resource): string =>
  JSON.stringify([short, identityOf(name), constraintsOf(condition).key]);

function putOf(one: Snapshot): Put {
  const name = canonical(one.type, one.name);
  return put(type(one.type), name, `c${one.number};`, {
    version: `v${one.number};`,
    aliases: [...new Set(one.aliases.map((alias) => canonical(one.type, alias)))].filter(
      (alias) => alias !== name,
    ),
    constraints: constraintsOf(one.condition),
  });
}

function canonical(short: Type, name: string): ResourceName {
  const read = canonicalName(name, type(short));
  if (!read.ok) throw new Error(read.error);
  return read.value;
}

function constraintsOf(condition: Condition | undefined): Put['constraints'] {
  const parsed = parseConstraints(encoded(condition), 64);
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.value;
}

const encoded = (condition: Condition | undefined): Uint8Array =>
  condition === undefined
    ? new Uint8Array()
    : toBinary(DynamicParameterConstraintsSchema, messageOf(condition));

function messageOf(condition: Condition): DynamicParameterConstraints {
  return create(DynamicParameterConstraintsSchema, { type: typeOf(condition) });
}

function typeOf(condition: Condition): DynamicParameterConstraints['type'] {
  if ('not' in condition) return { case: 'notConstraints', value: messageOf(condition.not) };
  if ('all' in condition || 'any' in condition) {
    const list = 'all' in condition ? condition.all : condition.any;
    const { type: of } = create(DynamicParameterConstraintsSchema, {
      type: {
        case: 'all' in condition ? 'andConstraints' : 'orConstraints',
        value: { constraints: list.map(messageOf) },
      },
    });
    return of;
  }
  const single =
    'key' in condition
      ? { key: condition.key, constraintType: { case: 'value' as const, value: condition.value } }
      : { key: condition.exists, constraintType: { case: 'exists' as const, value: {} } };
  return create(DynamicParameterConstraintsSchema, { type: { case: 'constraint', value: single } }).type;
}

/** The policy without the names that validation refuses: those, and no others. */
function accepted(policy: Policy): Policy {
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

function configOf({ rules, parameters }: Policy) {
  const xds = { authorization: { rules } };
  const upstreams = [{ name: 'script', filesystem: { path: '.' } }];
  return parseConfig(JSON.stringify({ upstreams, xds, parameters }), 'relay.json', {});
}

function rulesOf(policy: Policy): ClientRules {
  const config = configOf(policy);
  if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
  return new ClientRules(config.value);
}
