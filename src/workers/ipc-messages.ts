import { z } from 'zod';
import { levels, logFormats } from '../observe/log-levels.ts';

/**
 * The messages between the primary and its workers over node:cluster's IPC: facts without an answer. Resources go over
 * the feed, and requests with an answer over private sockets (private-listener.ts).
 */

/** Who is on the side of canaries. */
const canaries = z.object({
  kind: z.literal('canaries'),
  /** `rollout.canary`. */
  rules: z.object({
    percent: z.number(),
    match: z.array(z.object({ key: z.string(), value: z.string() })),
  }),
  /** Node ids: of the elected, and of the canaries of before a restart. */
  nodes: z.array(z.string()),
  /** The classes of which the rules make canaries; left out: all. */
  open: z.array(z.string()).optional(),
});

const start = z.object({
  kind: z.literal('start'),
  /** The configuration's text: each process reads it with the same environment. */
  text: z.string(),
  /** The text with which the relay was started. Some keys are in force until its end, also in later workers. */
  startedText: z.string(),
  /** For messages. */
  file: z.string(),
  /** The xDS listener's port, where the configuration leaves it open. */
  port: z.int().optional(),
  /** The same of the REST listener. */
  restPort: z.int().optional(),
  /** The sockets' (private-socket.ts). */
  directory: z.string(),
  /** The number of the slot. */
  slot: z.int(),
  /** Who the relay is to other relays. */
  relayId: z.string(),
  level: z.enum(levels),
  logFormat: z.enum(logFormats),
  version: z.string(),
  /** With a rollout: then the worker has two feeds. */
  canaries: canaries.optional(),
});

const reload = z.object({ kind: z.literal('reload'), text: z.string() });

/** The primary's state, as far as it decides when a client's stream fails, or gets less than others. */
const primaryState = z.object({
  kind: z.literal('primary_state'),
  ready: z.boolean(),
  /** Upstreams of which a whole round over their endpoints has failed. */
  down: z.array(z.string()),
  /** Types of which it has a resource, for whatever parameters. */
  served: z.array(z.string()),
  /** Parameter sets for which an upstream has no session (limits.max_upstream_sessions), and the message to clients. */
  refused: z.array(z.object({ upstream: z.string(), message: z.string(), parameters: z.array(z.string()) })),
});

/** What clients have open. */
const load = z.object({ streams: z.int(), connections: z.int() });

/** In the other workers. */
const loadElsewhere = z.object({
  kind: z.literal('load_elsewhere'),
  load,
  /** Workers took more than limits.max_streams at the same time: this one keeps its oldest streams, so many. */
  mostStreams: z.int().optional(),
});

/** What operators have set (AdminService SetLogLevel): all that is in force. */
const logLevels = z.object({
  kind: z.literal('log_levels'),
  overrides: z.array(
    z.object({ node: z.union([z.string(), z.undefined()]), level: z.enum(levels), until: z.number() }),
  ),
});

/** Asks what canaries say to what waits. With an empty list nothing waits any more. */
const waiting = z.object({
  kind: z.literal('waiting'),
  /** Never smaller than before. */
  round: z.int(),
  waiting: z.array(z.object({ type: z.string(), names: z.array(z.string()) })),
});

const drain = z.object({ kind: z.literal('drain'), milliseconds: z.number() });

const listening = z.object({
  kind: z.literal('listening'),
  addresses: z.array(z.object({ name: z.enum(['xds', 'rest']), address: z.string() })),
});

/** It cannot start, and ends. */
const failed = z.object({ kind: z.literal('failed'), reason: z.string() });

/** In this worker. */
const loadHere = z.object({ kind: z.literal('load_here'), load });

/** Its event loop turns: once a tick of the watchdog. */
const turned = z.object({ kind: z.literal('turned') });

/** The stream of a canary, and what it says to what waits. */
const canaryStream = z.object({
  /** Its id; empty of those that reject nothing. */
  stream: z.string(),
  /** How many are equal. */
  count: z.int(),
  node: z.string(),
  classKey: z.string(),
  standing: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('accepted') }),
    z.object({ kind: z.literal('waiting') }),
    z.object({
      kind: z.literal('rejected'),
      reason: z.string(),
      names: z.array(z.string()),
      isFinal: z.boolean(),
    }),
  ]),
  /** What it subscribes to of it: numbers of sets. */
  subscribed: z.array(z.int()),
});

/** The answer to `waiting`, and each time it is another one (canary-report.ts). */
const canaryReport = z.object({
  kind: z.literal('canary_report'),
  round: z.int(),
  /** Sets of what waits, by which members and streams say what they subscribe to. */
  subscriptions: z.array(z.array(z.string())),
  members: z.array(
    z.object({
      nodeId: z.string(),
      place: z.number(),
      classKey: z.string(),
      side: z.enum(['released', 'canary']),
      mayBeCanary: z.boolean(),
      subscribed: z.array(z.int()),
    }),
  ),
  /** The streams of canaries. Those that reject something, or did, one by one. */
  canaries: z.array(canaryStream),
  /** What has ended since the last report. Here, so that none is counted twice. */
  ended: z.array(canaryStream),
});

/** What clients have said to a change since the last message (history/recorder.ts). */
const answers = z.object({
  kind: z.literal('answers'),
  type: z.string(),
  name: z.string(),
  content: z.string(),
  accepted: z.int(),
  rejected: z.int(),
  tookMs: z.number().optional(),
});

const toWorker = z.discriminatedUnion('kind', [
  start,
  reload,
  primaryState,
  logLevels,
  loadElsewhere,
  canaries,
  waiting,
  drain,
]);
const toPrimary = z.discriminatedUnion('kind', [listening, failed, loadHere, turned, canaryReport, answers]);

export type Start = z.infer<typeof start>;
export type PrimaryState = z.infer<typeof primaryState>;
export type CanariesMessage = z.infer<typeof canaries>;
export type WaitingMessage = z.infer<typeof waiting>;
export type ReportedStream = z.infer<typeof canaryStream>;
export type CanaryReport = z.infer<typeof canaryReport>;
export type AnswersMessage = z.infer<typeof answers>;
export type ToWorker = z.infer<typeof toWorker>;
export type ToPrimary = z.infer<typeof toPrimary>;

/** Throws if it is something else: both ends are of the same build. */
export const readToWorker = (message: unknown): ToWorker => toWorker.parse(message);
export const readToPrimary = (message: unknown): ToPrimary => toPrimary.parse(message);
