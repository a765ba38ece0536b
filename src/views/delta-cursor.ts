import type { Access } from '../model/access.ts';
import { resourceName } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { NO_PARAMETERS } from '../model/parameters.ts';
import {
  collectionCovers,
  entryId,
  isCollection,
  itemId,
  type Selection,
  type SelectionEntry,
} from '../model/selection.ts';
import type { Defers, EarlierState, Encoding, Subscriber } from '../model/subscription.ts';
import { WILDCARD } from '../model/transaction.ts';
import { canonicalName, isGlob } from '../model/xdstp.ts';
import type { Change } from './change.ts';
import {
  type Absences,
  absentIn,
  type ClientResources,
  clientResourcesOf,
  selectedOf,
  toldAtHead,
  unknownAgainIn,
  unresolvedIn,
  WithheldAbsences,
} from './client-resources.ts';
import { Cursor } from './cursor.ts';
import { composeDelta, withoutBody } from './delta-response.ts';
import type { Composed, Frame, RetainedResource } from './frame.ts';
import type { Item } from './item.ts';
import type { CompositionInput, NamedRemoval } from './response-content.ts';
import { DeltaResponses } from './sent-responses.ts';
import type { View } from './view.ts';
import type { ViewPool } from './view-pool.ts';

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

/**
 * Names from initial_resource_versions that were removed while the client was away: a wildcard or glob of the view
 * covers them, and the view does not show them (protocol §4.1).
 */
function removedWhileAway(view: View, claimed: Iterable<string>): readonly string[] {
  if (!view.selection.hasCollection) return [];
  const shown = new Set<string>();
  for (const { spelling } of view.items.values()) shown.add(spelling);
  return [...claimed].filter((name) => !shown.has(name) && collects(view, name));
}

/** initial_resource_versions is a hint and no subscription. A name that no wildcard or glob covers is ignored. */
function collects(view: View, name: string): boolean {
  const { type, selection } = view;
  if (selection.hasCollectionSelector(WILDCARD)) return true;
  const canonical = canonicalName(name, type);
  return canonical.ok && selection.collectionsOver(canonical.value).length > 0;
}

/** A resource that a client has from an earlier stream and that is gone. Its body is not known. */
function goneWhileAway({ type, head, items }: View, spelling: string): RetainedResource {
  const id = itemId(false, NO_PARAMETERS, spelling);
  const canonical = canonicalName(spelling, type);
  const name = canonical.ok ? canonical.value : resourceName(spelling);
  const item = items.get(id) ?? {
    id,
    name,
    spelling,
    locator: false,
    parameters: NO_PARAMETERS,
    named: false,
    last: { revision: head, value: 'absent', older: undefined },
  };
  return { item, variant: withoutBody(type, name) };
}

/**
 * Names that a delta response must mention, as present or as absent, as soon as that is known: names that were
 * unsubscribed while a wildcard covers them (protocol §4.5), and globs, which may be empty (§6).
 */
class RequiredAnswers {
  /** Made when it is needed: most clients require nothing. */
  #required: Map<string, SelectionEntry> | undefined;

  get empty(): boolean {
    return this.#required === undefined || this.#required.size === 0;
  }

  has(id: string): boolean {
    return this.#required?.has(id) === true;
  }

  add(selected: SelectionEntry): void {
    this.#required ??= new Map();
    this.#required.set(entryId(selected), selected);
  }

  /** The answer to an empty glob is its URL as removed (protocol §6). */
  addGlobs(collections: readonly SelectionEntry[]): void {
    for (const selected of collections) if (isGlob(selected.selector)) this.add(selected);
  }

  /** Those that a view knows to be absent, by id. */
  *absentIn(view: View): Iterable<readonly [id: string, selected: SelectionEntry]> {
    const states = new AnswerStates(view);
    for (const [id, selected] of this.#required ?? none) {
      if (states.of(id, selected) === 'absent') yield [id, selected];
    }
  }

  /** A response has had all that the view knows. */
  dropAnswered(view: View): void {
    if (this.empty) return;
    const states = new AnswerStates(view);
    for (const [id, selected] of this.#required ?? none) {
      if (states.of(id, selected) !== 'unknown') this.#required?.delete(id);
    }
  }
}

/** What a view knows of several selectors. Valid while it does not change. */
class AnswerStates {
  readonly #view: View;
  /** The globs that show something. */
  #filled: Set<SelectionEntry> | undefined;

  constructor(view: View) {
    this.#view = view;
  }

  of(id: string, selected: SelectionEntry): 'present' | 'absent' | 'unknown' {
    const { selector, locator, parameters } = selected;
    const view = this.#view;
    if (isCollection(selector)) return this.#ofCollection(id);
    const item = view.items.get(id) ?? view.itemOf(locator, parameters, selector);
    const value = item?.last.value;
    if (isVariant(value)) return 'present';
    if (value !== undefined) return value;
    const covering = view.selection
      .collectionsOver(selector)
      .filter((collection) => collectionCovers(collection, selected));
    if (covering.some((collection) => !view.isResolved(collection))) return 'unknown';
    return covering.length > 0 ? 'absent' : 'present';
  }

  #ofCollection(id: string): 'present' | 'absent' | 'unknown' {
    const collection = this.#view.selection.entries.get(id);
    if (collection === undefined) return 'present'; // unsubscribed in the meantime: nothing needs to be said
    if (!this.#view.isResolved(collection)) return 'unknown';
    this.#filled ??= filledIn(this.#view);
    return this.#filled.has(collection) ? 'present' : 'absent';
  }
}

function filledIn({ items, selection }: View): Set<SelectionEntry> {
  const filled = new Set<SelectionEntry>();
  for (const { name: selector, locator, parameters, last } of items.values()) {
    if (!isVariant(last.value)) continue;
    for (const collection of selection.collectionsOver(selector)) {
      if (collectionCovers(collection, { selector, locator, parameters })) filled.add(collection);
    }
  }
  return filled;
}
