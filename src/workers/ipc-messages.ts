import { z } from 'zod';
import { logFormats } from '../observe/log.ts';
import { levels } from '../observe/log-levels.ts';

/**
 * The messages between the primary and its workers over node:cluster's IPC: facts without an answer. Resources go over
 * the feed, and requests with an answer over private sockets (private-listener.ts).
 */

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
  /** The sockets' (private-directory.ts). */
  directory: z.string(),
  /** The number of the slot. */
  slot: z.int(),
  /** Who the relay is to other relays. */
  relayId: z.string(),
  level: z.enum(levels),
  logFormat: z.enum(logFormats),
  version: z.string(),
});

const reload = z.object({ kind: z.literal('reload'), text: z.string() });

/** The primary's state, as far as it decides when a client's stream fails. */
const primaryState = z.object({
  kind: z.literal('primary_state'),
  ready: z.boolean(),
  /** Upstreams of which a whole round over their endpoints has failed. */
  down: z.array(z.string()),
  /** Parameter sets for which an upstream has no session (limits.max_upstream_sessions), and the message to clients. */
  refused: z.array(z.object({ upstream: z.string(), message: z.string(), parameters: z.array(z.string()) })),
});

/** What clients have open. */
const load = z.object({ streams: z.int(), connections: z.int() });

/** In the other workers. */
const loadElsewhere = z.object({ kind: z.literal('load_elsewhere'), load });

/** What operators have set (AdminService SetLogLevel): all that is in force. */
const logLevels = z.object({
  kind: z.literal('log_levels'),
  overrides: z.array(
    z.object({ node: z.union([z.string(), z.undefined()]), level: z.enum(levels), until: z.number() }),
  ),
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

const toWorker = z.discriminatedUnion('kind', [start, reload, primaryState, logLevels, loadElsewhere, drain]);
const toPrimary = z.discriminatedUnion('kind', [listening, failed, loadHere]);

export type Start = z.infer<typeof start>;
export type PrimaryState = z.infer<typeof primaryState>;
export type ToWorker = z.infer<typeof toWorker>;
export type ToPrimary = z.infer<typeof toPrimary>;

/** Throws if it is something else: both ends are of the same build. */
export const readToWorker = (message: unknown): ToWorker => toWorker.parse(message);
export const readToPrimary = (message: unknown): ToPrimary => toPrimary.parse(message);
