import { isVariant } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { encodeDeltaResponse } from '../wire/responses.ts';
import { type Change, hasBody, needsSending, sameSuffix, sameVariant } from './change.ts';
import { Coverage } from './coverage.ts';
import { DeltaContent } from './delta-content.ts';
import type { Composed } from './frame.ts';
import { type CompositionInput, nextSerial } from './response-content.ts';

/** The delta response for these changes. */
export function composeDelta(input: CompositionInput, changes: Iterable<Change>): Composed {
  const content = new DeltaContent(input);
  for (const change of changes) {
    const { item, now } = change;
    if (isVariant(now)) addVariant(content, input, change, now);
    else if (now === 'absent') addAbsence(content, input, change);
    content.addErrors(item);
  }
  addDeferred(content, input);
  content.addRequiredRemovals();
  content.dropAlreadyRemoved();
  content.addErrorsOfDeferred();
  const { deferredRemovals } = content;
  if (content.empty && !input.firstResponseDue) return { frame: undefined, deferredRemovals };
  const { view, controlPlane } = input;
  const id = nextSerial();
  const bytes = encodeDeltaResponse({
    type: view.type,
    version: view.version,
    nonce: String(id),
    resources: content.resources,
    errors: content.errors,
    controlPlane,
    removed: content.removed,
    removedNames: content.removedNames,
  });
  return { frame: content.frame(id, bytes, view.version), deferredRemovals };
}

/** What the view shows now, unless the client has it; and the removal of what it had instead. */
function addVariant(
  content: DeltaContent,
  { encoding, allItems }: CompositionInput,
  change: Change,
  now: Variant,
): void {
  const { item, lastSent, clientVersion, resend } = change;
  if (needsSending(change, now, encoding.ttl)) {
    const hasIt = !resend && isVariant(lastSent) && sameVariant(lastSent, now);
    content.noteChange(item, now, !resend && hasBody(lastSent, now));
    content.add(item, now, hasIt);
  }
  if (isVariant(lastSent)) content.replace(item, lastSent, now);
  else if (!allItems && item.named && lastSent === 'unknown') content.addAbsentForOthers(item);
  if (clientVersion === undefined || now.constraints.key === '') return;
  // initial_resource_versions has names without constraints. The client has the unconstrained resource, unless the
  // version shows that it has exactly this variant.
  const constrained = item.locator || encoding.constrained;
  if (constrained && !sameSuffix(clientVersion, now.deltaVersion)) content.addMissing(item);
}

/** The view does not show it any more, or has come to know that it is not there. */
function addAbsence(
  content: DeltaContent,
  input: CompositionInput,
  { item, lastSent, clientVersion, resend }: Change,
): void {
  if (isVariant(lastSent)) {
    if (input.defers({ item, variant: lastSent })) content.defer(item, lastSent);
    else content.remove(item, lastSent);
    return;
  }
  // The removal of what was deferred is sent in its time, and that of what the client has from an earlier stream too.
  if (input.deferredRemovals?.has(item.id) === true) return;
  if (clientVersion !== undefined) content.remove(item, undefined);
  else if (!input.encoding.absencesUnsaid && item.named && (resend || lastSent !== 'absent'))
    content.addAbsent(item);
}

/** What earlier responses deferred is removed now, or deferred again: also if it is unknown by now (protocol §3.9). */
function addDeferred(content: DeltaContent, { view, defers, deferredRemovals }: CompositionInput): void {
  if (deferredRemovals === undefined) return;
  const coverage = new Coverage(view);
  for (const [id, entry] of deferredRemovals) {
    const now = view.items.get(id)?.last.value;
    const isUnknown = now === undefined ? coverage.of(entry) === 'unresolved' : now === 'unknown';
    if (content.has(id) && isVariant(now)) content.replace(entry.item, entry.variant, now);
    else if (isUnknown || defers(entry)) content.keep(id, entry);
    else content.remove(entry.item, entry.variant);
  }
}
