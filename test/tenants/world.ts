import { ClientRules } from '../../src/clients.ts';
import type { ResourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { type Interest, type Put, WILDCARD } from '../../src/model/transaction.ts';
import { canonicalName } from '../../src/model/xdstp.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import type { Tally } from '../simulator/tally.ts';
import { InMemoryRelay, namedHolder, put, type, wildcardHolder } from '../support/in-memory-relay.ts';
import { testPeer } from '../support/peers.ts';
import { accepted, configOf } from './accepted.ts';
import { constraintsOf, keyOf } from './conditions.ts';
import type { Ground, Snapshot, Stream } from './ground.ts';
import { type Identity, type Policy, type Resource, type Type, types } from './policy.ts';
import { concerns, holds } from './reference.ts';

export interface WorldOptions {
  /** WITH_CONSTRAINTS. */
  readonly constrained: boolean;
  /** CONTENT. */
  readonly contentVersions: boolean;
}

/** The relay of a case, with its rules and the control plane above it. */
export class World implements Ground {
  /** A reload is at once. */
  readonly before = undefined;
  readonly lab: InMemoryRelay;
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
    this.lab = new InMemoryRelay({ ...options, clients: () => this.#rules });
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

  open(path: string, protocol: 'sotw' | 'delta', { uris: uriSans, dns: dnsSans }: Identity): Stream {
    const stream = protocol === 'delta' ? this.lab.delta(path) : this.lab.sotw(path);
    stream.peer = testPeer({ uriSans, dnsSans });
    return stream;
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
    this.lab.says({ type: type(short), holder: namedHolder, resourceErrors: [fault], resolved: [] });
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
          resolved: interests,
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

function rulesOf(policy: Policy): ClientRules {
  const config = configOf(policy);
  if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
  return new ClientRules(config.value);
}
