import type { ChangeJournal, Journal } from '../cache/journal.ts';
import type { Config } from '../config/config.ts';
import { Acceptance } from '../history/acceptance.ts';
import { History } from '../history/history.ts';
import { Recorder } from '../history/recorder.ts';
import { RelayContents } from '../inspect/relay-contents.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import type { RecordedChanges } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { PendingName } from '../model/rollout.ts';
import type { Relay } from '../relay.ts';
import type { RecordedCommits } from './core.ts';

export interface ChangeRecordOptions {
  readonly clock: Clock;
  /** The configuration in force. */
  readonly config: () => Config;
  readonly relay: () => Relay;
  /** Persistence, if there is any. */
  readonly journal: ChangeJournal | undefined;
}

/** Records what changes in a relay. */
export class ChangeRecord implements RecordedCommits {
  readonly history: History;
  readonly recorder: Recorder;
  readonly acceptance: Acceptance;
  /** The store reports its changes here; passed on to persistence. */
  readonly journal: Journal;

  readonly #config: () => Config;

  constructor({ clock, config, relay, journal }: ChangeRecordOptions) {
    this.#config = config;
    this.history = new History({
      clock,
      limits: () => config().history,
      written: ({ type, revision }) => journal?.change(type, revision),
    });
    this.acceptance = new Acceptance(this.history, clock);
    this.recorder = new Recorder({
      history: this.history,
      acceptance: this.acceptance,
      clock,
      contents: new RelayContents(relay),
    });
    this.journal = {
      resource: (type, name) => {
        journal?.resource(type, name);
        this.recorder.touched(type, name);
      },
      interest: (interest) => journal?.interest(interest),
      version: (type, holder) => journal?.version(type, holder),
    };
  }

  /** What is cached now was restored. */
  start(relay: Relay, recorded: RecordedChanges | undefined): void {
    if (recorded !== undefined) this.history.restore(recorded);
    this.recorder.start();
    relay.gate.onChanged(({ type, joined, left, receivedAt }) =>
      this.recorder.gateChanged(type, [...joined, ...left], receivedAt),
    );
  }

  get revisions(): RecordedCommits['revisions'] {
    const { releasedRevision: revision, lastRevision: pendingRevision } = this.history;
    return { revision, pendingRevision };
  }

  committed(commit: Commit): void {
    this.recorder.committed(commit);
  }

  acknowledged(receivedAt: number): void {
    // With workers, those that acknowledge here are not the clients.
    if (this.#config().workers === 0) this.acceptance.acknowledged(receivedAt);
  }

  canariesAccepted(names: readonly PendingName[]): void {
    const waiting = new Map<TypeUrl, Set<ResourceName>>();
    for (const [type, own] of Map.groupBy(names, (one) => one.type))
      waiting.set(type, new Set(own.map(({ name }) => name)));
    this.acceptance.canariesAccepted(waiting);
  }
}
