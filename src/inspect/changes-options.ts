import type { History } from '../history/history.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Decision, Scope } from '../model/holds.ts';
import type { Log } from '../observe/log.ts';
import type { Relay } from '../relay.ts';
import type { ClientsView } from './clients-view.ts';

export interface ChangesOptions {
  readonly relay: Relay;
  readonly history: History;
  readonly log: Log;
  readonly clients: () => ClientsView;
  readonly maxResponseBytes: () => number;
  /** Those that go to canaries first. */
  readonly gatedTypes: () => ReadonlySet<TypeUrl>;
  /** Whether a restart keeps the resources of this type. */
  readonly isPersisted: (type: TypeUrl) => boolean;
  /** Nothing of this changes from now on. */
  readonly freeze: (filter: Scope, decision: Decision) => void;
}
