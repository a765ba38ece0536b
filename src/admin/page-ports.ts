import type { CertificateState } from '../observe/certificates.ts';
import type { Figure, Recent } from '../observe/figures.ts';
import type { RecentLine } from '../observe/recent-lines.ts';

/** Something that a limit of the configuration bounds. */
export interface Usage {
  /** The key of the configuration. */
  readonly name: string;
  readonly used: number;
  readonly limit: number;
}

/** How the relay connects to an upstream over TLS: paths of PEM files, and the name that it asks for. */
export interface UpstreamTls {
  readonly ca: string | undefined;
  readonly identity: { readonly certificate: string; readonly privateKey: string } | undefined;
  readonly serverName: string | undefined;
}

/** What the status page and the list of problems need beside the rest of Status. Times are milliseconds since the epoch. */
export interface PageFacts {
  /** Of the text of the configuration in force. */
  readonly configuration: string;
  /** When that was read. */
  readonly configuredAt: number;
  readonly startedAt: number;
  readonly readOnly: boolean;
  readonly usage: readonly Usage[];
  /** limits.max_work_per_peer, in milliseconds. */
  readonly workPerPeerMs: number;
  /** Of all processes: several have those of one listener. */
  readonly certificates: readonly CertificateState[];
  /** The last version of the configuration, if it is not in force. */
  readonly refusedConfiguration: RefusedConfiguration | undefined;
  /** Undefined: nothing is persisted. */
  readonly disk: DiskFacts | undefined;
  readonly recent: Recent;
  /** What operators have discarded, and upstream still says. Undefined: nothing. */
  readonly discarded: DiscardedFacts | undefined;
  /** rollout.max_wait, in milliseconds. */
  readonly rolloutMaxWaitMs: number | undefined;
  /** max_removal_hold by upstream, in milliseconds. */
  readonly removalHoldMs: ReadonlyMap<string, number>;
  /** Upstreams with a session for each parameter set. */
  readonly perParameters: ReadonlySet<string>;
  /** By upstream; those without TLS are left out. */
  readonly upstreamTls: ReadonlyMap<string, UpstreamTls>;
}

export interface RefusedConfiguration {
  readonly file: string;
  readonly problems: readonly string[];
  readonly since: number;
}

/** Names of which nobody gets what upstream says. */
export interface DiscardedFacts {
  readonly names: number;
  /** Short names, sorted. */
  readonly types: readonly string[];
  readonly upstreams: readonly string[];
  /** Where it is one. */
  readonly only: { readonly type: string; readonly name: string } | undefined;
  /** The operators', joined; empty: they are not known. */
  readonly reason: string;
  /** Since when the first of them differs from what clients have. */
  readonly since: number;
}

export interface DiskFacts {
  readonly path: string;
  /** Undefined: the last write succeeded. */
  readonly failing: { readonly reason: string; readonly since: number } | undefined;
  readonly lagSeconds: number;
}

/** What the status page shows beside what the commands do. */
export interface PageSource {
  facts(): PageFacts;
  /** The last five minutes. */
  figures(): readonly Figure[];
  /** The last lines of the log, the newest first. */
  lines(): readonly RecentLine[];
  /** The upstream that serves a name, a glob or the wildcard of a type (a short name or a type URL). */
  upstreamOf(type: string, selector: string): string | undefined;
}
