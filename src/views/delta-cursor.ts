import type { Access } from '../model/access.ts';
import { isVariant } from '../model/catalog.ts';
import { entryId, type Selection, type SelectionEntry } from '../model/selection.ts';
import type { Defers, EarlierState, Encoding, Subscriber } from '../model/subscription.ts';
import type { Change } from './change.ts';
import {
  type Absences,
  absentIn,
  type ClientResources,
  clientResourcesOf,
  selectedOf,
  unknownAgainIn,
  unresolvedIn,
} from './client-resources.ts';
import { goneWhileAway, removedWhileAway } from './client-versions.ts';
import { composeDelta } from './compose-delta.ts';
import { Cursor } from './cursor.ts';
import type { Composed, Frame, RetainedResource } from './frame.ts';
import type { Item } from './item.ts';
import { RequiredAnswers } from './required-answers.ts';
import type { CompositionInput, NamedRemoval } from './response-content.ts';
import { DeltaResponses } from './sent-responses.ts';
import type { View } from './view.ts';
import type { ViewPool } from './view-pool.ts';
import { toldAtHead, WithheldAbsences } from './withheld-absences.ts';

const none: readonly never[] = [];
/** What a client says that it has, and is gone, is kept until it may go: so many of them, of so many bytes each. */
const mostGone = 1000;
const bytesPerGone = 600;

/** The cursor of a delta client. */
export class DeltaCursor extends Cursor {
  readonly responses = new DeltaResponses(this);
  readonly #requiredAnswers = new RequiredAnswers();
  /** Resources of earlier views whose state is unknown in this view. */
  #carriedOver: ClientResources | undefined;
  /** initial_resource_versions that no response has covered yet (protocol §4.1). */
  #clientVersions: Map<string, string> | undefined;
  #waitForAll = false;
  /** Bytes that its peer pays for what is gone. */
  #goneBytes = 0;
  /** At the position. Made when it is needed. */
  #withheld: WithheldAbsences | undefined;

  constructor(
    pool: ViewPool,
    encoding: Encoding,
    selection: Selection,
    access: Access,
    subscriber: Subscriber,
  ) {
    super(pool, encoding, selection, access, subscriber);
    this.#requiredAnswers.addGlobs(selection.collections);
  }

  resume({ initialVersions, waitForAll = false }: EarlierState): void {
    this.#waitForAll = waitForAll;
    if (initialVersions === undefined) return;
    this.#clientVersions = new Map(initialVersions);
    this.resumed = initialVersions.size > 0;
  }

  override select(
    selection: Selection,
    access: Access,
    again: ReadonlySet<string>,
    mustAnswer: readonly SelectionEntry[] = none,
  ): void {
    super.select(selection, access, again);
    if (again.size > 0 && this.responses.awaitsAnswer) this.#carryOutstanding();
    if (mustAnswer.length === 0) return;
    for (const selected of mustAnswer) this.#requiredAnswers.add(selected);
    this.markBehind(true);
  }

  /**
   * What was unsubscribed counts as never sent. But if it is subscribed again while a response with it is outstanding,
   * the client may have sent both requests before it read that response. Then it has the resource; else it has dropped
   * it (protocol §4.5).
   */
  #carryOutstanding(): void {
    if (this.position === undefined || this.position.view === this.view) return;
    const dropped = [...this.responses.outstandingAdditions()]
      .filter(([id]) => !isVariant(this.lastSent(id)))
      .map(([id, retained]) => [id, { ...retained, mayBeDropped: true }] as const);
    if (dropped.length === 0) return;
    const again = selectedOf(new Map(dropped), this.view);
    if (again.size > 0) this.#carriedOver = new Map([...(this.#carriedOver ?? none), ...again]);
  }

  protected override move(selection: Selection, access: Access): void {
    const old = this.view;
    this.#anchorIn(old);
    super.move(selection, access);
    this.#requiredAnswers.addGlobs(
      selection.collections.filter((selected) => !old.selection.has(entryId(selected))),
    );
  }

  /**
   * Leaves a view before any response was sent from it. What the client unsubscribed when it moved to that view is
   * dropped at the client, even if it subscribes to it again (protocol §4.5).
   */
  #anchorIn(view: View): void {
    const base = this.position;
    if (base === undefined || base.view === view) return;
    this.#carriedOver = selectedOf(clientResourcesOf(base, view, this.#carriedOver), view);
    const absent = absentIn(base, view, (id) => this.#isWithheld(id));
    this.position = { view, revision: -1, generation: view.generation, absent };
    this.#withheld = undefined;
    base.view.anchored.delete(this);
    this.leave(base.view);
  }

  protected override resendSelected(ids: ReadonlySet<string>): void {
    super.resendSelected(ids);
    this.#requiredAnswers.addGlobs(
      this.view.selection.collections.filter((selected) => ids.has(entryId(selected))),
    );
  }

  /**
   * If the parameters of a client change, it may lose resources of a wildcard or glob. It keeps all of them until the
   * wildcard is resolved, and then gets all changes in one response. A wildcard that it adds holds nothing up.
   */
  protected withheld(): boolean {
    const { view } = this;
    if (this.#waitForAll && !this.responded && !view.collectionsResolved) return true;
    const from = this.position?.view;
    if (from === undefined || from === view || view.collectionsResolved) return false;
    return view.selection.collections.some(
      (selected) => from.selection.has(entryId(selected)) && !view.isResolved(selected),
    );
  }

  protected override takeChanges(defers: Defers): Frame | undefined {
    const versions =
      this.#clientVersions !== undefined && this.awaitsFirstAnswer()
        ? new Map(this.#clientVersions)
        : undefined;
    const frame = super.takeChanges(defers);
    // If nothing was sent, no response has covered them.
    if (frame === undefined && versions !== undefined) this.#clientVersions = versions;
    return frame;
  }

  protected override advance(): void {
    this.#carriedOver = this.#stillUnresolved();
    this.#requiredAnswers.dropAnswered(this.view);
    const told = this.#toldAbsences();
    super.advance();
    this.#payForGone();
    this.#withheld = undefined;
    if (this.position !== undefined && this.position.absent !== told) this.position.absent = told;
    if (this.#clientVersions !== undefined) this.markBehind(true);
  }

  override close(): void {
    this.deferredRemovals = undefined;
    this.#payForGone();
    super.close();
  }

  #payForGone(): void {
    if (this.deferredRemovals === undefined && this.#goneBytes === 0) return;
    let bytes = 0;
    for (const { variant } of this.deferredRemovals?.values() ?? none)
      if (variant.payload === undefined) bytes += bytesPerGone;
    this.payer?.keeps(bytes - this.#goneBytes);
    this.#goneBytes = bytes;
  }

  protected override onlyDeferredRemovals(): boolean {
    return this.#clientVersions === undefined && this.#requiredAnswers.empty && super.onlyDeferredRemovals();
  }

  protected override mustSendEmpty(): boolean {
    return this.#clientVersions === undefined && super.mustSendEmpty();
  }

  protected override needsOwnResponse(): boolean {
    return (
      this.#clientVersions !== undefined ||
      this.#carriedOver !== undefined ||
      this.position?.absent !== undefined ||
      !this.#requiredAnswers.empty ||
      super.needsOwnResponse()
    );
  }

  protected override get carriedOver(): ClientResources | undefined {
    return this.#carriedOver;
  }

  protected compose(input: CompositionInput, changes: Iterable<Change>): Composed {
    return composeDelta(input, changes);
  }

  protected override ownInput(
    input: CompositionInput,
    resources: ClientResources | undefined,
  ): CompositionInput {
    const own = super.ownInput(input, resources);
    const gone = new Map<string, RetainedResource>();
    for (const name of this.#goneWhileAway()) {
      const retained = goneWhileAway(this.view, name);
      if (!isVariant(this.lastSent(retained.item.id))) gone.set(retained.item.id, retained);
    }
    const mustRemove = this.#mustRemove();
    if (gone.size === 0) return { ...own, mustRemove };
    if (gone.size > mostGone) {
      const names = Array.from(gone, ([id, { item }]) => ({ id, name: item.spelling, locator: false }));
      return { ...own, mustRemove: [...names, ...mustRemove] };
    }
    return { ...own, deferredRemovals: new Map([...gone, ...(own.deferredRemovals ?? none)]), mustRemove };
  }

  protected override changeOf(item: Item, resources: ClientResources | undefined): Change {
    const change = super.changeOf(item, resources);
    return {
      ...change,
      lastSent: change.lastSent === 'absent' && this.#isWithheld(item.id) ? 'unknown' : change.lastSent,
      clientVersion: this.#clientVersions?.get(item.spelling),
      resend:
        change.resend || resources?.get(item.id)?.mayBeDropped === true || this.#requiredAnswers.has(item.id),
    };
  }

  #isWithheld(id: string): boolean {
    if (this.position === undefined) return false;
    this.#withheld ??= new WithheldAbsences(this.position);
    return this.#withheld.has(id);
  }

  /** Absences that the client was told, and that are withheld at the head from those who were not. */
  #toldAbsences(): Absences | undefined {
    const { view, position } = this;
    // In one view they are withheld from all alike.
    if (position === undefined || (position.view === view && position.absent === undefined)) return undefined;
    return toldAtHead(view, ({ id }) => this.lastSent(id) === 'absent' && !this.#isWithheld(id));
  }

  #mustRemove(): readonly NamedRemoval[] {
    const removals: NamedRemoval[] = [];
    for (const [id, selected] of this.#requiredAnswers.absentIn(this.view)) {
      removals.push({ id, name: selected.spelling, locator: selected.locator });
    }
    return removals;
  }

  /** What the client had, what it names or a resolved wildcard covers, and what is not there (protocol §4.1). */
  #goneWhileAway(): readonly string[] {
    const { view } = this;
    if (this.#clientVersions === undefined) return none;
    const gone: string[] = [];
    for (const { spelling, locator, last } of view.items.values()) {
      if (last.value === 'unknown' || !this.#clientVersions.delete(spelling)) continue;
      if (last.value === 'absent' && !locator) gone.push(spelling);
    }
    if (!view.collectionsResolved) return gone;
    const removed = removedWhileAway(view, this.#clientVersions.keys());
    if (view.unresolvedNames.size === 0) this.#clientVersions = undefined;
    for (const name of removed) this.#clientVersions?.delete(name);
    return [...gone, ...removed];
  }

  #stillUnresolved(): ClientResources | undefined {
    const { view, position } = this;
    const stays = position?.view === view && view.unknownAgain.size > 0 ? position : undefined;
    const resources = stays === undefined ? this.clientResources() : unknownAgainIn(stays, this.#carriedOver);
    return resources === undefined ? undefined : unresolvedIn(resources, view);
  }
}
