import type { TypeStatus, UpstreamStatus, WorkerStatus } from '../../gen/distributary/admin/v1/admin_pb.ts';
import type { ClientClass } from '../../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem } from '../../gen/distributary/admin/v1/problems_pb.ts';
import type { WaveStatus } from '../../gen/distributary/admin/v1/rollout_pb.ts';
import type { Figure } from '../../observe/figure.ts';
import type { Plain } from '../plain.ts';

export type { Figure };

/** AdminService's, with its names shortened. */
export interface PageProblem extends Omit<Plain<Problem>, 'classes'> {
  readonly classes: readonly { readonly class: string; readonly label: string; readonly clients: number }[];
}

/**
 * What the status page shows, as plain JSON: bounded in size, whatever the relay serves. Times are milliseconds since
 * the epoch, so that a page counts by itself and the model changes only when something has changed.
 */
export interface PageModel {
  readonly relay: RelayFacts;
  /** Streams, and those that poll. */
  readonly clients: number;
  /** The worst first. */
  readonly problems: readonly PageProblem[];
  /** How many more there are. */
  readonly moreProblems: number;
  /** Undefined: none waits. */
  readonly change: PageChange | undefined;
  readonly upstreams: readonly PageUpstream[];
  /** Those with the most streams. */
  readonly classes: readonly PageClass[];
  /** Those that are not listed. */
  readonly otherClasses: { readonly classes: number; readonly streams: number };
  readonly types: readonly Plain<TypeStatus>[];
  readonly cacheBytes: number;
  /** The newest first. */
  readonly events: readonly PageEvent[];
}

export interface RelayFacts {
  readonly nodeId: string;
  readonly host: string;
  readonly version: string;
  readonly configuration: string;
  readonly configuredAt: number;
  readonly startedAt: number;
  readonly ready: boolean;
  /** Why it is not ready. */
  readonly reason: string;
  readonly readOnly: boolean;
  readonly workers: readonly Pick<WorkerStatus, 'number' | 'listening' | 'clients' | 'restarts'>[];
}

/** A change that waits, the first that is held if several do. */
interface PageChange {
  readonly state: string;
  readonly since: number;
  /** What changes: types, and names as far as they are few. */
  readonly what: string;
  /** From 1. */
  readonly wave: number;
  readonly waves: number;
  /** 0: that is not known. */
  readonly ends: number;
  /** Of each wave, and at the end of everybody else. */
  readonly clients: readonly PageWave[];
  readonly streams: number;
  readonly accepted: number;
  readonly rejected: number;
  /** What checks and traffic say. */
  readonly verdicts: readonly PageVerdict[];
}

interface PageWave extends Plain<WaveStatus> {
  /** Its bake; 0: it is that of everybody else. */
  readonly seconds: number;
}

export interface PageVerdict {
  readonly of: string;
  readonly state: string;
  readonly reason: string;
  /** Undefined: it has said nothing yet, or is not one of the first. */
  readonly chart: PageChart | undefined;
}

/** What a verdict was, over time. */
export interface PageChart {
  /** When the points are of, the oldest first. */
  readonly at: readonly number[];
  /** None: it says only whether all is well. */
  readonly lines: readonly PageLine[];
  /** For each point without lines, G (good), B (bad) or U (unknown). */
  readonly marks: string;
  readonly unit: '' | '%';
  /** The same in words. */
  readonly text: string;
}

export interface PageLine {
  readonly name: string;
  /** `bound`: what must not be crossed; `other`: what is compared with. */
  readonly kind: 'value' | 'other' | 'bound';
  /** One for each point, or one for all. Null: there is none. */
  readonly values: readonly (number | null)[];
}

type UpstreamFacts = 'name' | 'kind' | 'connected' | 'stale' | 'endpoint' | 'sessions' | 'lastError';

interface PageUpstream extends Pick<UpstreamStatus, UpstreamFacts> {
  /** 0: current. */
  readonly staleSince: number;
  /** It has a session for each parameter set. */
  readonly perParameters: boolean;
}

type ClassFacts = 'id' | 'restricted' | 'streams' | 'rejecting' | 'unacknowledged' | 'late';

export interface PageClass extends Pick<ClientClass, ClassFacts> {
  /** `env=prod, version=v1`; `(no parameters)`. */
  readonly label: string;
  /** Where what it subscribes to comes from. */
  readonly upstreams: readonly ClassUpstream[];
}

/** What a class has from one upstream: streams that reject something of it, or have not acknowledged it for 30 s. */
interface ClassUpstream {
  readonly name: string;
  readonly rejecting: number;
  readonly late: number;
}

export interface PageEvent {
  readonly at: number;
  readonly level: 'info' | 'warn' | 'error';
  /** Of a change of resources; 0: a line of the log. */
  readonly revision: number;
  readonly text: string;
  readonly detail: string;
}
