import type { History } from '../history/history.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Log } from '../observe/log.ts';
import type { Relay } from '../relay.ts';
import type { Rollout } from '../rollout/rollout.ts';
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
  readonly rollout: Rollout;
}
