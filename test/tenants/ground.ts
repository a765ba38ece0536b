import type { Tally } from '../simulator/tally.ts';
import type { Identity, Policy, Resource, Type } from './policy.ts';

/** A resource as it was at one time; its content and versions bear its number. */
export interface Snapshot extends Resource {
  readonly number: number;
}

/** A stream to a relay. */
export interface Stream {
  readonly path: string;
  /** Frames that came and were not looked at yet, with their prefix of five bytes. */
  readonly inbox: Buffer[];
  /** How it ended. */
  readonly status: { readonly code: number; readonly message: string } | undefined;
  /** The client does not read. */
  blocked: boolean;
  /** A request, as the protocol's fields. */
  send(short: Type, request: object): void;
  unblock(): void;
  disconnect(): void;
}

/** What tenants stand on: a relay with its rules, and the control plane above it. */
export interface Ground {
  readonly policy: Policy;
  /** The rules before, while it is not known whether they are still in force. */
  readonly before: Policy | undefined;
  /** WITH_CONSTRAINTS. */
  readonly constrained: boolean;
  /** What the control plane has, by type, name and condition. */
  readonly current: ReadonlyMap<string, Snapshot>;
  readonly snapshots: readonly Snapshot[];
  /** Names that errors were about, by the number in their message. */
  readonly errors: readonly { readonly type: Type; readonly name: string }[];
  /** How often what has happened. */
  readonly tally: Tally;
  open(path: string, protocol: 'sotw' | 'delta', identity: Identity): Stream;
}
