import type { ClientListeners } from '../client-serving.ts';
import type { Config } from '../config/config.ts';
import type { Load } from '../core.ts';
import type { ParametersKey, TypeUrl } from '../model/brand.ts';
import type { ReportedTraffic } from '../model/load.ts';
import type { LevelOverride, LogFormat, LogLevel } from '../observe/log-levels.ts';
import { version } from '../package/files.ts';
import type { Member, WaveRules } from '../releases/canaries.ts';
import type { ReportedAnswers } from '../releases/recorder.ts';
import type { CanaryStream, Waiting } from '../releases/waiting.ts';
import type { SharedSessions } from '../wire/tls-sessions.ts';

/**
 * The messages between the primary and its workers over node:cluster's IPC: facts without an answer. They are structured
 * clones, so a set that is in a message twice is sent once. Resources go over the feed, and requests with an answer over
 * private sockets (private-socket.ts).
 */

/**
 * Who speaks. A package that is replaced while the relay runs starts workers of its own build, and what is in a message, as
 * the configuration, changes with the builds. Read at the start: later the file may be the other package's.
 */
const build = version();

export type ToWorker =
  | {
      readonly kind: 'start';
      /** What is in force. */
      readonly config: Config;
      /**
       * Where the listeners of the workers listen, now and later; undefined: on a Unix socket, or there is none. `shared`: each
       * worker listens by itself (SO_REUSEPORT), else all of them through the primary.
       */
      readonly ports: Readonly<
        Record<'xds' | 'rest', { readonly port: number; readonly shared: boolean } | undefined>
      >;
      /** The sockets' (private-socket.ts). */
      readonly directory: string;
      /** The number of the slot. */
      readonly slot: number;
      /** Who the relay is to other relays. */
      readonly relayId: string;
      readonly level: LogLevel;
      readonly logFormat: LogFormat;
      readonly version: string;
      readonly sessions: readonly SharedSessions[];
      /** With a rollout: then the worker has two feeds. */
      readonly canaries: Message<'canaries'> | undefined;
    }
  | { readonly kind: 'reload'; readonly config: Config }
  /** The primary's state, as far as it decides when a client's stream fails, or gets less than others. */
  | {
      readonly kind: 'primary_state';
      readonly ready: boolean;
      /** Upstreams of which a whole round over their endpoints has failed. */
      readonly down: readonly string[];
      /** Types of which it has a resource, for whatever parameters. */
      readonly served: ReadonlySet<TypeUrl>;
      /**
       * By upstream: parameter sets for which it has no session (limits.max_upstream_sessions), and the message to clients.
       */
      readonly refused: ReadonlyMap<
        string,
        { readonly message: string; readonly parameters: ReadonlySet<ParametersKey> }
      >;
    }
  /** What operators have set (AdminService SetLogLevel): all that is in force. */
  | { readonly kind: 'log_levels'; readonly overrides: readonly LevelOverride[] }
  /**
   * What clients have open in the other workers. `most`: workers took more at the same time than a limit allows, and this
   * one keeps its oldest streams or connections, so many.
   */
  | { readonly kind: 'load_elsewhere'; readonly load: Load; readonly most: Partial<Load> }
  /** Who is in the cohort of canaries. `open`: the classes of which the rules make canaries; undefined: all. */
  | ({ readonly kind: 'canaries'; readonly open: ReadonlySet<string> | undefined } & WaveRules)
  /** Asks what canaries say to what waits. If that is nothing, nothing waits any more. `round`: never smaller than before. */
  | { readonly kind: 'waiting'; readonly round: number; readonly waiting: Waiting }
  /** What clients can resume their TLS sessions by, whichever worker they meet: all of it. */
  | { readonly kind: 'tls_sessions'; readonly sessions: readonly SharedSessions[] }
  | { readonly kind: 'drain'; readonly milliseconds: number };

export type ToPrimary =
  | { readonly kind: 'listening'; readonly addresses: ClientListeners['addresses'] }
  /** It cannot start, and ends. All builds understand it. */
  | { readonly kind: 'failed'; readonly reason: string }
  /** What clients have open in this worker. */
  | { readonly kind: 'load_here'; readonly load: Load }
  /** Its event loop turns: once a tick of the watchdog. */
  | { readonly kind: 'turned' }
  /** The answer to `waiting`, and each time it is another one (reporters.ts). */
  | {
      readonly kind: 'canary_report';
      readonly round: number;
      readonly members: readonly Member[];
      /** The streams of canaries. Those that reject nothing have no id. */
      readonly canaries: readonly CanaryStream[];
      /** What has ended since the last report. Here, so that none is counted twice. */
      readonly ended: readonly CanaryStream[];
    }
  /** What clients have reported of their traffic since the last message, and streams of reports that have ended. */
  | {
      readonly kind: 'traffic';
      readonly reports: readonly ReportedTraffic[];
      readonly left: readonly string[];
    }
  /** A client was the first in this worker to show this intermediate (DER), with a certificate that was verified. */
  | { readonly kind: 'intermediate'; readonly listener: 'xds' | 'rest'; readonly certificate: Uint8Array }
  /** What clients have said to a change since the last message (history/recorder.ts). */
  | ({ readonly kind: 'answers' } & ReportedAnswers);

export type Message<Kind extends (ToWorker | ToPrimary)['kind']> = Extract<
  ToWorker | ToPrimary,
  { readonly kind: Kind }
>;

/** Why a process of another build is not spoken with. */
export const anotherBuild: Message<'failed'> = {
  kind: 'failed',
  reason: 'the program was replaced by another version while the relay runs: restart the relay',
};

/** A message as it is sent. */
export const sealed = <Sent extends ToWorker | ToPrimary>(message: Sent) => ({ ...message, build });

const isOurs = (message: unknown): boolean =>
  typeof message === 'object' && message !== null && 'build' in message && message.build === build;

/** Within one build the types hold: both ends were compiled together. What else comes is of another build. */
export const isToWorker = (message: unknown): message is ToWorker => isOurs(message);
export const isToPrimary = (message: unknown): message is ToPrimary => isOurs(message);
