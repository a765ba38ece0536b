import type { Core } from '../assembly/core.ts';
import type { Side } from '../model/side.ts';
import type { JudgingProcess } from './workers-fleet.ts';

/** The primary's judge, and how far its feeds are. */
export function judgingProcess(core: Core): JudgingProcess {
  const { relay } = core;
  const { rollout } = core.rollout;
  return {
    canaryRules: () => rollout.canaryRules,
    namedCanaries: () => rollout.namedCanaries,
    hasDelivered: (side) => hasDelivered(core, side),
    waits: () => relay.gate.size > 0,
    canaryAnswered: () => rollout.canaryAnswered(),
    openClasses: () => rollout.openClasses,
    canaryEnded: (stream) => rollout.canaryEnded(stream),
  };
}

/** Of other types something is always on its way, and nobody waits for it. */
function hasDelivered({ relay, config }: Core, side: Side): boolean {
  const gated = new Set(config.rollout?.types);
  for (const { client, types } of relay.server.streams()) {
    if (client?.access.side !== side) continue;
    for (const { info, subscription } of types) {
      if (!gated.has(info.url) || subscription === undefined) continue;
      if (subscription.due || subscription.responses.awaitsAnswer) return false;
    }
  }
  return true;
}
