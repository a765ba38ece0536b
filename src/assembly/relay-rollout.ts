import type { Config } from '../config/config.ts';
import type { XdsStream } from '../downstream/xds-server.ts';
import type { Clock } from '../model/clock.ts';
import type { PendingName, SidedClient, SideOf } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { typeInfo } from '../model/types.ts';
import type { Log } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Relay } from '../relay.ts';
import { Rollout, type RolloutEvents, type RolloutOptions, type SavedRollout } from '../rollout/rollout.ts';
import type { HashOf } from '../rollout/verdicts.ts';
import type { Fleet } from '../rollout/waiting.ts';
import { RelayFleet } from './rollout-fleet.ts';

/** Where a restart finds what must not be forgotten. */
export interface RolloutStorage {
  load(): SavedRollout;
  /** Of what is loaded and saved. */
  readonly hashOf: HashOf;
  save(state: SavedRollout): void;
}

/** Where the clients are in other processes than the judge. */
export interface RolloutRole {
  readonly sideOf: SideOf;
  /** The clients that the judge of this process observes; undefined: its own. */
  readonly fleet: Fleet | undefined;
  /** A client on the side of canaries has answered something. */
  readonly canaryAnswered: () => void;
  /** The stream of one has ended; it still has its types. */
  readonly canaryEnded: (stream: XdsStream) => void;
}

export interface RelayRolloutOptions {
  readonly relay: Relay;
  readonly clock: Clock;
  readonly config: () => Config;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Of the last change that everybody has, and of the last change (History). */
  readonly revisions: RolloutOptions['revisions'];
  /** All canaries have accepted these. */
  readonly canariesSaid: RolloutEvents['canariesSaid'];
  /** Undefined: nothing is kept over restarts. */
  readonly storage: RolloutStorage | undefined;
  /** Undefined: judge and clients are in this process. */
  readonly role: RolloutRole | undefined;
}

/** The rollout of a relay's changes to its clients. */
export class RelayRollout {
  readonly rollout: Rollout;
  readonly #role: RolloutRole | undefined;
  /** The clients of this process. */
  readonly fleet: RelayFleet;

  constructor(options: RelayRolloutOptions) {
    const { relay, clock, config, storage, revisions, role } = options;
    this.#role = role;
    this.fleet = new RelayFleet(relay, clock, () => this.#answered());
    this.rollout = new Rollout(config().rollout, {
      gate: relay.gate,
      fleet: role?.fleet ?? this.fleet,
      clock,
      revisions,
      saved: storage?.load(),
      hashOf: storage?.hashOf,
      removalLimits: () => removalLimits(config()),
      events: events(options, () => this.fleet.over()),
    });
  }

  sideOf(client: SidedClient): Side {
    return this.#role?.sideOf(client) ?? this.rollout.sideOf(client);
  }

  canaryAnswered(stream: string): void {
    this.fleet.touched(stream);
    this.#answered();
  }

  /** It still has its types. */
  streamEnded(stream: XdsStream): void {
    if (stream.client?.access.side === 'canary') this.#canaryEnded(stream);
    this.fleet.touched(stream.id);
  }

  stop(): void {
    this.rollout.stop();
    this.fleet.stop();
  }

  #answered(): void {
    if (this.#role === undefined) this.rollout.canaryAnswered();
    else this.#role.canaryAnswered();
  }

  #canaryEnded(stream: XdsStream): void {
    if (this.#role !== undefined) {
      this.#role.canaryEnded(stream);
      return;
    }
    const waiting = this.rollout.waiting();
    const canary = waiting.size === 0 ? undefined : this.fleet.canary(stream, waiting);
    if (canary !== undefined) this.rollout.canaryEnded(canary);
  }
}

function removalLimits({ upstreams }: Config) {
  return upstreams.flatMap(({ name, maxRemovalPercent, maxRemovalHoldMs }) =>
    maxRemovalPercent === undefined ? [] : [{ upstream: name, maxRemovalPercent, maxRemovalHoldMs }],
  );
}

function events(
  { log, metrics, storage, canariesSaid }: RelayRolloutOptions,
  over: () => void,
): RolloutEvents {
  return {
    canariesSaid,
    counted: (result) => metrics.rollouts(result).inc(),
    released(names, milliseconds) {
      metrics.rolloutDuration().observe(milliseconds / 1000);
      log.info('a change that canaries had first goes to everybody', {
        ...told(names),
        seconds: milliseconds / 1000,
      });
    },
    stateChanged(state) {
      metrics.rolloutState(state.kind);
      if (state.kind === 'IDLE' || state.kind === 'FROZEN') over();
    },
    changeIs(state, names) {
      if (state.kind === 'CANARY') log.info('a change goes to canaries first', told(names));
      if (state.kind === 'HELD') {
        const { cause, reason } = state;
        log.warn('a change is held: only canaries have it', { ...told(names), cause, reason });
      }
    },
    save(state) {
      metrics.frozen(state.freezes.length > 0);
      storage?.save(state);
    },
  };
}

/** What a line of the log says of a change. */
function told(names: readonly PendingName[]) {
  return {
    upstreams: [...new Set(names.map(({ upstream }) => upstream))],
    types: [...new Set(names.map(({ type }) => typeInfo(type).short))],
    names: names.length,
  };
}
