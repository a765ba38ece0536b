import type { Figure } from '../../observe/figure.ts';
import { formatSeconds } from '../../observe/format.ts';

export type { Figure };

/**
 * What the status page shows, as plain JSON: bounded in size, whatever the relay serves. Times are milliseconds since
 * the epoch, so that a page counts by itself and the model changes only when something has changed.
 */
export interface PageModel {
  readonly relay: RelayFacts;
  /** Streams, and those that poll. */
  readonly clients: number;
  /** The worst first. */
  readonly problems: readonly Problem[];
  /** How many more there are. */
  readonly moreProblems: number;
  readonly upstreams: readonly PageUpstream[];
  /** Those with the most streams. */
  readonly classes: readonly PageClass[];
  /** Those that are not listed. */
  readonly otherClasses: { readonly classes: number; readonly streams: number };
  readonly types: readonly PageType[];
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
  readonly workers: readonly PageWorker[];
}

interface PageWorker {
  readonly number: number;
  readonly listening: boolean;
  readonly clients: number;
  readonly restarts: number;
}

type Severity = 'bad' | 'warn';

export interface Problem {
  /** The same while it is the same problem. */
  readonly id: string;
  readonly severity: Severity;
  readonly title: string;
  readonly detail: string;
  /** For the sentence at the top, which says equal ones once; empty: the title. */
  readonly short: string;
  /** Since when, 0: unknown. */
  readonly since: number;
  /** When something happens by itself; 0: never. */
  readonly until: number;
  /** What to type; empty: nothing. */
  readonly command: string;
  /** A page of docs/runbooks; empty: there is none. */
  readonly runbook: string;
  /** The query of the page that shows the clients or the resource; empty: there is none. */
  readonly link: string;
  readonly linkText: string;
}

interface PageUpstream {
  readonly name: string;
  readonly kind: string;
  readonly connected: boolean;
  readonly stale: boolean;
  /** 0: current. */
  readonly staleSince: number;
  readonly endpoint: string;
  readonly sessions: number;
  readonly lastError: string;
  /** It has a session for each parameter set. */
  readonly perParameters: boolean;
}

export interface PageClass {
  readonly id: string;
  /** `env=prod, version=v1`; `(no parameters)`. */
  readonly label: string;
  readonly restricted: boolean;
  readonly streams: number;
  readonly rejecting: number;
  readonly unacknowledged: number;
  readonly late: number;
  /** Where what it subscribes to comes from. */
  readonly upstreams: readonly ClassUpstream[];
}

/** What a class has from one upstream: streams that reject something of it, or have not acknowledged it for 30 s. */
interface ClassUpstream {
  readonly name: string;
  readonly rejecting: number;
  readonly late: number;
}

interface PageType {
  readonly type: string;
  readonly resources: number;
  readonly variants: number;
  readonly subscriptions: number;
  readonly ambiguous: number;
}

export interface PageEvent {
  readonly at: number;
  readonly level: 'info' | 'warn' | 'error';
  /** Of a change of resources; 0: a line of the log. */
  readonly revision: number;
  readonly text: string;
  readonly detail: string;
}

/** Distinct parameter sets have distinct labels. */
export function parametersLabel(parameters: Readonly<Record<string, string>>): string {
  const words = Object.entries(parameters).map(([key, value]) => `${key}=${value}`);
  return words.length === 0 ? '(no parameters)' : words.toSorted().join(', ');
}

/**
 * What matters most, as somebody would say it on the phone. `now`: for how long each problem lasts is said too; without
 * it the sentence changes only when something has changed.
 */
export function sentence({ clients, problems, moreProblems }: PageModel, now?: number): string {
  const bySentence = [...Map.groupBy(problems, ({ short, title }) => short || title)].slice(0, 3);
  const told = bySentence.map(([text, same]) => {
    const since = Math.min(...same.map((one) => one.since || Infinity));
    return now === undefined || since === Infinity
      ? text
      : `${text} for ${formatSeconds((now - since) / 1000)}`;
  });
  const rest = problems.length - bySentence.reduce((sum, [, same]) => sum + same.length, 0) + moreProblems;
  const more = rest === 0 ? [] : [`${rest} more ${rest === 1 ? 'problem' : 'problems'}`];
  const serving = `Serving ${clients.toLocaleString('en')} ${clients === 1 ? 'client' : 'clients'}`;
  return `${[serving, ...told, ...more].join('; ')}${problems.length === 0 ? '; all is well' : ''}.`;
}
