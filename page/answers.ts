/** Answers of AdminService as JSON, as far as the page uses them. */

export interface ClientTypeState {
  readonly type: string;
  readonly version: string;
  readonly state: string;
  readonly last_nack: string;
  /** Empty: it has a stream. */
  readonly last_poll: string;
}

export interface Client {
  readonly id: string;
  readonly node?: { readonly id: string; readonly cluster: string };
  readonly peer: string;
  readonly transport: string;
  readonly class: string;
  readonly types: readonly ClientTypeState[];
  /** Left out: nothing waits for it. */
  readonly wave?: {
    readonly wave: number;
    readonly waves: number;
    /** Empty: it does not have it yet. */
    readonly answer: string;
  };
}

export interface Clients {
  readonly clients: readonly Client[];
  readonly total: number;
  readonly matching: number;
}

export interface Holding {
  readonly type: string;
  readonly name: string;
  readonly state: string;
  readonly sent: string;
  readonly constraints: string;
  readonly version: string;
  readonly since: string;
  readonly current: boolean;
  readonly error: string;
}

export interface ClientDetail {
  readonly id: string;
  readonly node_id: string;
  readonly node_cluster: string;
  readonly peer: string;
  readonly transport: string;
  readonly service: string;
  readonly class: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly holdings: readonly Holding[];
  readonly total: number;
}

export interface Explanation {
  readonly match: string;
  readonly match_found: boolean;
  readonly state: string;
  readonly ambiguous: boolean;
  readonly variants: readonly {
    readonly constraints: string;
    readonly version: string;
    readonly matches: boolean;
    readonly reason: string;
    readonly upstream: string;
  }[];
}

export interface Resource {
  readonly variants: readonly {
    readonly constraints: string;
    readonly version: string;
    readonly bytes: number;
    readonly since: string;
    readonly upstream: string;
    readonly json: string;
    readonly omitted: string;
  }[];
}

export interface Match {
  readonly state: string;
  readonly content: string;
  readonly constraints: string;
  readonly version: string;
  readonly ambiguous: boolean;
  readonly rejected: number;
}

export interface Matches {
  readonly parameter_sets: readonly {
    readonly parameters: Readonly<Record<string, string>>;
    readonly streams: number;
  }[];
  readonly names: readonly { readonly name: string; readonly matches: readonly Match[] }[];
  readonly total: number;
  readonly total_parameter_sets: number;
}

export interface Differences {
  readonly differences: readonly {
    readonly type: string;
    readonly name: string;
    readonly change: string;
    readonly variants: readonly { readonly constraints: string; readonly yaml: string }[];
  }[];
}
