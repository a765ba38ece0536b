import { hash } from 'node:crypto';
import { isVariant } from '../model/catalog.ts';
import { contentHash } from '../model/change.ts';
import type { Variant } from '../model/resource.ts';
import type { Encoding } from '../model/subscription.ts';
import { encodeSotwResponse, type OutgoingError } from '../wire/responses.ts';
import { UNKNOWN_STATUS } from '../wire/via.ts';
import {
  type Change,
  type CompositionInput,
  hasBody,
  needsSending,
  nextSerial,
  noConstraints,
  ResponseContent,
  sameVariant,
} from './response-content.ts';
import type { Composed, EncodedResponse, RetainedResource } from './shared-responses.ts';
import type { View } from './view.ts';

const none: ReadonlyMap<string, RetainedResource> = new Map();

/**
 * The SotW response: the whole selection if absence deletes, else what changed (protocol §3.7). `lastSerial`: the
 * subscriber's; the next one must be higher.
 */
export function composeSotw(
  input: CompositionInput,
  changes: Iterable<Change>,
  lastSerial: number,
): Composed {
  const { view, encoding } = input;
  const content = new ResponseContent(input);
  const isDue = collect(content, input, changes);
  const { deferredRemovals } = content;
  if (!isDue) return { response: undefined, deferredRemovals };
  const isShareable = view.complete && deferredRemovals === undefined && content.errors.length === 0;
  if (!isShareable) return { response: encode(content, input, undefined), deferredRemovals };
  // The complete state is the same for every subscriber. Only the record of what was new differs.
  const shown = encoding.unknownNames ? view : view.shown;
  const whole = shown.shared.whole(encoding, lastSerial);
  if (whole !== undefined) return { response: content.reuse(whole), deferredRemovals: undefined };
  const response = encode(content, input, plainState(shown, encoding));
  if (!response.timeDependent && shown.isShared) shown.shared.addWhole(encoding, response);
  return { response, deferredRemovals: undefined };
}

/** True: the client must get a response. */
function collect(content: ResponseContent, input: CompositionInput, changes: Iterable<Change>): boolean {
  let isDue = deferAgain(content, input) || input.firstResponseDue;
  for (const change of changes) {
    isDue = addChange(content, input, change) || isDue;
    content.addErrors(change.item);
  }
  content.addErrorsOfDeferred();
  return isDue || content.errors.length > 0;
}

/**
 * What earlier responses deferred is deferred again, or removed now. What the client may not see any more is not sent
 * again. True: the client must get a response because something is removed.
 */
function deferAgain(
  content: ResponseContent,
  { defers, deferredRemovals = none }: CompositionInput,
): boolean {
  let removes = false;
  for (const [id, retained] of deferredRemovals) {
    if (defers(retained)) content.keep(id, retained);
    else removes = true;
  }
  return removes;
}

/** True: the client must get a response because of this change. */
function addChange(
  content: ResponseContent,
  { view, encoding, defers }: CompositionInput,
  change: Change,
): boolean {
  const { item, now, lastSent, resend } = change;
  if (isVariant(now)) {
    content.deferred.delete(item.id);
    if (!needsSending(change, now, encoding.ttl)) return false;
    const hasIt = !resend && isVariant(lastSent) && sameVariant(lastSent, now);
    content.noteChange(item, now, !resend && hasBody(lastSent, now));
    if (!view.complete) content.add(item, now, hasIt);
    return true;
  }
  if (now !== 'absent' || !view.complete) return false;
  if (isVariant(lastSent) && defers({ item, variant: lastSent })) {
    content.defer(item, lastSent);
    return false;
  }
  return lastSent !== 'absent' && (isVariant(lastSent) || item.named);
}

function encode(
  content: ResponseContent,
  { view, encoding, controlPlane }: CompositionInput,
  plain: readonly Uint8Array[] | undefined,
): EncodedResponse {
  if (plain === undefined && view.complete) {
    for (const item of view.items.values()) {
      if (isVariant(item.last.value)) content.add(item, item.last.value, false);
    }
    for (const { item, variant } of content.deferred.values()) content.add(item, variant, false);
  }
  const id = nextSerial();
  const version = versionOf(view, encoding, content.deferred.size > 0 ? content : undefined);
  const bytes = encodeSotwResponse({
    type: view.type,
    version,
    nonce: String(id),
    plain,
    resources: content.resources,
    errors:
      encoding.unknownNames && view.complete ? [...content.errors, ...unknownNames(view)] : content.errors,
    controlPlane,
  });
  return content.response(id, bytes, version, plain?.length);
}

/** To a relay below, what this lacks would be absent (protocol §3.13). */
function unknownNames({ unresolvedNames }: View): readonly OutgoingError[] {
  const names = new Set(Iterator.from(unresolvedNames).map(({ spelling }) => spelling));
  return Array.from(names, (name) => ({ name, constraints: noConstraints, status: UNKNOWN_STATUS }));
}

/** The upstream's, verbatim; where it gives none, a digest of what is visible (protocol §3.10). */
function versionOf(view: View, encoding: Encoding, union: ResponseContent | undefined): string {
  if (!encoding.contentVersions && view.version !== '') return view.version;
  // A union with deferred removals must not have the version of what is visible.
  const digest = union === undefined ? viewDigest(view) : digestOf(union.resources);
  return encoding.contentVersions ? `${view.version}@${digest}` : digest;
}

/**
 * The bodies of a complete SotW state, if a response needs nothing else: one wildcard or glob, and no constraints,
 * wrappers or TTLs. Most clients subscribe like this, and each class of clients needs its own response. Undefined: some
 * resource needs more than its body.
 */
function plainState({ items, selection }: View, encoding: Encoding): readonly Uint8Array[] | undefined {
  const [collection] = selection.collections;
  // With more than one entry two items may show the same resource.
  if (collection === undefined || selection.size > 1 || collection.locator) return undefined;
  if (encoding.wrapped || encoding.constrained) return undefined;
  const bodies: Uint8Array[] = [];
  for (const { name, last } of items.values()) {
    const { value } = last;
    if (!isVariant(value)) continue;
    if (value.name !== name || value.payload === undefined) return undefined;
    if (encoding.ttl && value.ttl !== undefined) return undefined;
    bodies.push(value.payload.bytes);
  }
  return bodies;
}

const digests = new WeakMap<View, { readonly generation: number; readonly digest: string }>();

/** Digest of everything that a view shows, resource errors included: 16 hex digits. */
export function viewDigest(view: View): string {
  const { shown } = view;
  if (shown !== view) return viewDigest(shown);
  const known = digests.get(view);
  if (known?.generation === view.generation) return known.digest;
  const digest = hashOf([...linesOf(shownIn(view)), ...errorLines(view)]);
  digests.set(view, { generation: view.generation, digest });
  return digest;
}

interface Shown {
  readonly name: string;
  readonly variant: Variant;
}

function digestOf(shown: Iterable<Shown>): string {
  return hashOf(linesOf(shown));
}

function hashOf(lines: readonly string[]): string {
  return hash('sha256', lines.toSorted().join('\n'), 'hex').slice(0, 16);
}

function linesOf(shown: Iterable<Shown>): string[] {
  return Array.from(shown, ({ name, variant }) =>
    JSON.stringify([name, variant.constraints.key, contentHash(variant)]),
  );
}

/** Another error is news, or it would hide behind a 304 (protocol §7.3). */
function* errorLines(view: View): Iterable<string> {
  for (const item of view.items.values()) {
    for (const { constraints, status } of view.resourceErrors(item)) {
      yield JSON.stringify([item.name, constraints.key, 'error', Buffer.from(status).toString('base64')]);
    }
  }
}

function* shownIn(view: View): Iterable<Shown> {
  for (const { name, last } of view.items.values()) {
    if (isVariant(last.value)) yield { name, variant: last.value };
  }
}
