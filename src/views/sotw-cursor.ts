import { isVariant } from '../model/catalog.ts';
import type { Defers, EarlierState } from '../model/subscription.ts';
import type { Change } from './change.ts';
import { Cursor } from './cursor.ts';
import type { Composed, Frame } from './frame.ts';
import type { CompositionInput } from './response-content.ts';
import { SotwResponses } from './sent-responses.ts';
import { composeSotw } from './sotw-response.ts';
import type { View } from './view.ts';
import { viewDigest } from './view-digest.ts';

/** The cursor of a SotW client. */
export class SotwCursor extends Cursor {
  readonly responses = new SotwResponses(this);
  /** Names that the client may hold from earlier streams: their absence deletes (protocol §3.9). */
  #possiblyHeld: ReadonlySet<string> | undefined;
  /** The version in the client's first request (CONTENT, protocol §3.10). */
  #contentVersion: string | undefined;
  #hadEverything = false;

  resume({ possiblyHeld, contentVersion }: EarlierState): void {
    this.#possiblyHeld = possiblyHeld;
    this.#contentVersion = contentVersion;
    this.resumed = possiblyHeld !== undefined;
  }

  /** What the client has from an earlier stream is as good as a response. */
  override get responded(): boolean {
    return this.#hadEverything || super.responded;
  }

  /** A response is complete: what is missing from it is deleted. */
  protected override get takesParts(): boolean {
    return !this.view.complete;
  }

  protected withheld(): boolean {
    const { view } = this;
    if (!view.complete) return false;
    if (!view.collectionsResolved) return true;
    if (this.encoding.unknownNames) return false;
    for (const item of view.unresolvedNames) {
      if (this.#possiblyHeld?.has(item.spelling) === true || this.#holds(item.id)) return true;
    }
    return false;
  }

  protected override takeChanges(defers: Defers): Frame | undefined {
    if (!this.#hasEverything()) return super.takeChanges(defers);
    this.#hadEverything = true;
    this.advance();
    return undefined;
  }

  protected override advance(): void {
    this.#possiblyHeld = undefined;
    super.advance();
  }

  protected compose(input: CompositionInput, changes: Iterable<Change>): Composed {
    return composeSotw(input, changes, this.responses.lastSerial);
  }

  #holds(id: string): boolean {
    return isVariant(this.lastSent(id)) || this.deferredRemovals?.has(id) === true;
  }

  /** Whether the version in the client's first request shows that it has everything visible. */
  #hasEverything(): boolean {
    const version = this.#contentVersion;
    this.#contentVersion = undefined;
    return version !== undefined && hasEverything(this.view, version);
  }
}

/** Whether a SotW client's version (CONTENT) says that it has exactly this, and nothing with a time to live (§3.10). */
function hasEverything(view: View, version: string): boolean {
  if (!view.collectionsResolved || view.unresolvedNames.size > 0) return false;
  for (const { last } of view.items.values()) {
    if (isVariant(last.value) && last.value.ttl !== undefined) return false;
  }
  return version.endsWith(`@${viewDigest(view)}`);
}
