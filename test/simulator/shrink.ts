import { readFileSync } from 'node:fs';
import type { Plan, Step } from './schedule.ts';
import { simulate } from './simulation.ts';
import type { Rule } from './violation.ts';

export interface Scenario {
  readonly plan: Plan;
  readonly steps: readonly Step[];
  /** Of a regression: what holds now, and did not. */
  readonly name?: string;
}

/** A file of scenarios, each one JSON document on a line. */
export const readScenarios = (path: string): readonly Scenario[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Scenario);

/** The shortest schedule that still breaks this rule: nothing can be left out of it any more. */
export function shrink(plan: Plan, steps: readonly Step[], rule: Rule): Scenario {
  const breaks = (scenario: Scenario): boolean =>
    simulate(scenario.plan, scenario.steps).failure?.rule === rule;
  let least: Scenario = { plan, steps };
  for (let before = -1; before !== weight(least); ) {
    before = weight(least);
    least = dropSteps(least, breaks);
    least = dropClients(least, breaks);
    least = dropWants(least, breaks);
    least = shorten(least, breaks);
    least = simplify(least, breaks);
  }
  return least;
}

type Breaks = (scenario: Scenario) => boolean;

const weight = (scenario: Scenario): number => JSON.stringify(scenario).length;

/** Halves first, then quarters, down to single steps. */
function dropSteps({ plan, steps }: Scenario, breaks: Breaks): Scenario {
  let kept = steps;
  for (let size = Math.ceil(steps.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < kept.length; ) {
      const fewer = [...kept.slice(0, at), ...kept.slice(at + size)];
      if (breaks({ plan, steps: fewer })) kept = fewer;
      else at += size;
    }
  }
  return { plan, steps: kept };
}

function dropClients({ plan, steps }: Scenario, breaks: Breaks): Scenario {
  let kept = plan;
  for (const { id } of plan.clients) {
    const fewer = { ...kept, clients: kept.clients.filter((client) => client.id !== id) };
    if (breaks({ plan: fewer, steps })) kept = fewer;
  }
  return { plan: kept, steps };
}

function dropWants({ plan, steps }: Scenario, breaks: Breaks): Scenario {
  let kept = plan;
  for (const { id } of plan.clients) {
    const own = kept.clients.find((client) => client.id === id);
    for (const want of own?.wants ?? []) {
      const fewer = {
        ...kept,
        clients: kept.clients.map((client) =>
          client.id === id ? { ...client, wants: client.wants.filter((one) => one !== want) } : client,
        ),
      };
      if (breaks({ plan: fewer, steps })) kept = fewer;
    }
  }
  return { plan: kept, steps };
}

function shorten({ plan, steps }: Scenario, breaks: Breaks): Scenario {
  let kept = steps;
  for (let at = 0; at < kept.length; at++) {
    const shorter = kept.map((step, index) => (index === at ? { ...step, wait: 0 } : step));
    if (kept[at]?.wait !== 0 && breaks({ plan, steps: shorter })) kept = shorter;
  }
  return { plan, steps: kept };
}

/** Everybody as plain as can be. */
function simplify(scenario: Scenario, breaks: Breaks): Scenario {
  let { plan } = scenario;
  const attempt = (next: Plan): void => {
    if (JSON.stringify(next) !== JSON.stringify(plan) && breaks({ plan: next, steps: scenario.steps }))
      plan = next;
  };
  const plain = { slow: false, chatty: false, wrapped: false } as const;
  for (const key of ['slow', 'chatty', 'wrapped'] as const) {
    attempt({ ...plan, clients: plan.clients.map((client) => ({ ...client, [key]: plain[key] })) });
  }
  const common = {
    contentVersions: false,
    constrained: false,
    maxCacheBytes: 2 ** 30,
    idleMilliseconds: 600_000,
  };
  for (const key of ['contentVersions', 'constrained', 'maxCacheBytes', 'idleMilliseconds'] as const) {
    attempt({ ...plan, relays: plan.relays.map((relay) => ({ ...relay, [key]: common[key] })) });
  }
  const usual = {
    splits: false,
    dropsStale: false,
    tellsMissing: true,
    versions: 'revision',
    lag: 0,
    errors: false,
  } as const;
  for (const key of ['splits', 'dropsStale', 'tellsMissing', 'versions', 'lag', 'errors'] as const) {
    const planes = plan.planes.map((plane) => ({
      ...plane,
      habits: { ...plane.habits, [key]: usual[key] },
    }));
    attempt({ ...plan, planes });
  }
  for (const { id } of plan.planes.slice(1)) {
    attempt({
      ...plan,
      planes: plan.planes.filter((plane) => plane.id !== id),
      relays: plan.relays.map((relay) => ({
        ...relay,
        endpoints: relay.endpoints.filter((endpoint) => endpoint !== id),
      })),
    });
  }
  return { plan, steps: scenario.steps };
}
