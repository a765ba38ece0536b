import type { Config } from './config/config.ts';
import { systemClock } from './model/clock.ts';
import type { PendingName } from './model/rollout.ts';
import { typeInfo } from './model/types.ts';
import type { Conditions } from './observe/conditions.ts';
import type { Log } from './observe/log.ts';
import type { Metrics } from './observe/metrics.ts';
import { Notifications } from './releases/notifications.ts';
import type { Recorder } from './releases/recorder.ts';
import type { RolloutReport } from './releases/rollout.ts';
import type { RolloutFile } from './releases/rollout-file.ts';
import type { RolloutEvents } from './releases/seams.ts';
import type { RelayFleet } from './rollout-fleet.ts';

/** A webhook is told of so many names. */
const mostNamesTold = 100;

interface RolloutListeners {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly recorder: Recorder | undefined;
  readonly fleet: RelayFleet;
  readonly notifications: Notifications;
}

/** Tells servers what becomes of changes, by the configuration (`rollout.notify`). */
export function notificationsOf(
  { rollout, node }: Config,
  { metrics, conditions }: { readonly metrics: Metrics; readonly conditions: Conditions },
): Notifications {
  const failing = new Set<string>();
  return new Notifications(rollout?.notify ?? [], systemClock, node.id, (host, result) => {
    metrics.count.rolloutNotifications(result.ok ? 'sent' : 'failed').inc();
    const named = `notify ${host}`;
    if (!result.ok) {
      const { error: reason } = result;
      failing.add(host);
      conditions.set(named, reason, 'warn', 'a notification of a change was given up (rollout.notify)', {
        host,
        reason,
      });
    } else if (failing.delete(host))
      conditions.set(named, '', 'info', 'notifications arrive again', { host });
  });
}

/** What a rollout tells metrics, the log, the history and the disk. */
export function rolloutEvents(
  { log, metrics, recorder, fleet, notifications }: RolloutListeners,
  file: RolloutFile | undefined,
): RolloutEvents {
  return {
    canariesSaid: (names, said) => recorder?.canariesSaid(names, said),
    counted: (result) => metrics.count.rollouts(result).inc(),
    released(names, milliseconds) {
      metrics.observe.rolloutDuration().observe(milliseconds / 1000);
      log.info('a change that canaries had first goes to everybody', {
        ...told(names),
        seconds: milliseconds / 1000,
      });
      notifications.tell({ event: 'RELEASED', ...listed(names) });
    },
    stateChanged(state) {
      if (state.kind === 'IDLE' || state.kind === 'FROZEN') fleet.over();
    },
    decided: (names, reason) => recorder?.decided(names, reason),
    changeIs(state, names, { wave, waves }) {
      const isQueued = names.every(({ masked }) => masked === 'queued');
      const cause = state.kind === 'HELD' ? { cause: state.cause } : {};
      recorder?.isAt(names, isQueued ? cause : { wave, waves, ...cause });
      if (state.kind === 'CANARY' && wave === 1) log.info('a change goes to canaries first', told(names));
      if (state.kind === 'CANARY' && wave > 1)
        log.info('a change goes to the next wave', { ...told(names), wave });
      if (state.kind === 'HELD') {
        const { reason } = state;
        const fields = { ...told(names), ...cause, reason };
        if (isQueued) log.warn('a change is held: nobody has it', fields);
        else log.warn('a change is held: only canaries have it', fields);
        notifications.tell({ event: 'HELD', ...cause, reason, ...listed(names) });
      }
    },
    discarded(names, cause, reason) {
      if (cause !== undefined) recorder?.isAt(names, { cause });
      if (cause !== undefined)
        log.warn('a change was found bad, and who had it goes back', { ...told(names), cause, reason });
      notifications.tell({ event: 'DISCARDED', cause, reason, ...listed(names) });
    },
    resolved(names, cause, reason) {
      log.info('a change is not held any more', { ...told(names), cause, reason });
      notifications.tell({ event: 'RESOLVED', cause, reason, ...listed(names) });
    },
    save: (state) => file?.save(state),
  };
}

/** What a webhook is told. */
export function whatWaits({ state, wave, bakes, shown, canaries }: RolloutReport) {
  const { count: pending, ...waiting } = listed(shown.filter(({ masked }) => masked === undefined));
  const since = new Date(state.since).toISOString();
  return { state: state.kind, since, wave, waves: bakes.length, canaries, ...waiting, pending };
}

/** What servers are told of the names of a change. */
function listed(all: readonly PendingName[]) {
  const names = all.slice(0, mostNamesTold).map(({ name }) => name);
  return { ...told(all), names, count: all.length };
}

/** What a line of the log says of a change. */
function told(names: readonly PendingName[]) {
  return {
    upstreams: [...new Set(names.map(({ upstream }) => upstream))],
    types: [...new Set(names.map(({ type }) => typeInfo(type).short))],
    names: names.length,
  };
}
