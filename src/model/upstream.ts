import type { ParametersKey, TypeUrl } from './brand.ts';
import type { Holder, Interest, Restamp, Transaction } from './transaction.ts';

/** Where an upstream delivers its transactions and changes of state. */
export interface UpstreamSink {
  /** Applied at once, as a whole. */
  apply(transaction: Transaction): void;
  /** Applied at once, as a whole. */
  restamp(restamp: Restamp): void;
  /** Its `UpstreamState` has changed. */
  changed(): void;
  /** A new stream was opened for these holders. The control plane may have restarted, or be another one. */
  streamReopened?(holders: readonly string[]): void;
  /** Ends this interest if nobody subscribes to it, because upstream does not update it any more. */
  endIfIdle?(interest: Interest): void;
  /**
   * Its answer is from before a restart, or from elsewhere, and upstream has not confirmed it: see `Holder.restored`. Left
   * out: nothing is.
   */
  isRestored?(interest: Interest): boolean;
  /** The types of which something is restored that this holder publishes. Nothing but its full state removes that. */
  restoredOf?(holder: Holder): Iterable<TypeUrl>;
}

/** A type whose request may have made the control plane end a stream. It is subscribed on an isolated stream. */
export interface Suspect {
  readonly type: TypeUrl;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** How the last stream ended. */
  readonly reason: string;
}

export interface UpstreamState {
  readonly kind: 'ads' | 'filesystem';
  /** HTTP/2 is up, or the files are scanned. */
  readonly connected: boolean;
  /** It was connected at least once: the relay can be ready (docs/operations.md, /ready). */
  readonly everConnected: boolean;
  /** Every endpoint has failed once since the last connection. What is not cached cannot be served (protocol §8). */
  readonly down: boolean;
  /** The endpoint in use or last tried; the path of files. */
  readonly endpoint: string;
  readonly sessions: number;
  /** Milliseconds since the epoch: since when what came from here may be out of date; undefined while current. */
  readonly staleSince: number | undefined;
  /** Milliseconds since the epoch: since when siblings' answers are served in its place. Undefined: they are not. */
  readonly fromSiblingsSince?: number | undefined;
  readonly lastError: string;
  /** Streams that ended before any response and are opened again, while others work. */
  readonly refusedStreams: number;
}

/** What of an upstream's removals of one type is held back. */
export interface HeldRemovals {
  readonly type: TypeUrl;
  readonly count: number;
  /** Milliseconds since the epoch. */
  readonly since: number;
}

/** Parameter sets that are not subscribed upstream, and why. */
export interface Refusals {
  readonly message: string;
  readonly parameters: readonly ParametersKey[];
}

/** What is counted of updates; what is left out is not. */
export interface UpdateMetrics {
  /** A response or a scan of this type was accepted just now. */
  accepted?(type: TypeUrl): void;
  /** `arrivedAt`: when the response arrived, by `Clock.monotonic()`. */
  rejected?(type: TypeUrl, reason: string, arrivedAt: number | undefined): void;
}

/**
 * A source of resources. Responses flow to the sink it was made with; interest comes in here. What costs it nothing, or
 * cannot happen to it, is left out.
 */
export interface Upstream {
  readonly name: string;
  /**
   * It says all that it has as this holder, asked or not, and what becomes of that. Left out: it says what it is asked.
   */
  readonly publishesAs?: Holder;
  /** Whether a name (or `*`) of a type is served from here. */
  claims(type: TypeUrl, selector: string): boolean;
  /** Each distinct interest once; a second call for the same one is an error of the caller. */
  subscribe(interest: Interest): void;
  /**
   * Subscribes once more to what is subscribed already. A new client asked for a resource with do_not_cache (protocol
   * §5).
   */
  resubscribe?(interest: Interest): void;
  unsubscribe(interest: Interest): void;
  /** The last client of this interest has left. The subscription stays for `cache.idle_ttl`. */
  markIdle?(interest: Interest): void;
  /** Somebody subscribes again to what was idle. */
  markActive?(interest: Interest): void;
  /** Why this interest is not subscribed upstream. Undefined: it is. */
  refusal?(interest: Interest): string | undefined;
  /** Who asks for this now cannot be answered if it is not cached. Left out: it goes by `state().down`. */
  isUnavailable?(interest: Interest): boolean;
  /** All refused parameter sets; undefined: there are none. */
  refusals?(): Refusals | undefined;
  /** Asked at every change and for every stream: it must cost the same however much is subscribed. */
  state(): UpstreamState;
  /** What it keeps beside the cache, of the last responses. Looks through all sessions. */
  keptBytes?(): number;
  /** The types on isolated streams. Looks through all subscriptions. */
  suspects?(): readonly Suspect[];
  /** Its look at what it publishes, while one is under way. */
  readonly looking?: Promise<void> | undefined;
  start(): void;
  stop(): Promise<void>;
}
