import { type ResourceName, resourceName, revision, type TypeUrl, typeUrl } from '../../model/brand.ts';
import type { Change, ChangedName, Content } from '../../model/change.ts';
import type { Holder } from '../../model/transaction.ts';
import { deltaVersionOf } from '../payloads.ts';
import type { RestoredVariant } from '../restored.ts';
import { type ChangeBody, changeBody, type HolderBody, type VariantBody } from './bodies.ts';
import type { Row } from './records.ts';

export interface ChangeContext {
  /** Whether what came from this upstream is still its own: else its bodies are left out. */
  readonly keeps: (upstream: string) => boolean;
  readonly variant: (body: VariantBody) => Omit<RestoredVariant, 'type' | 'name' | 'holders'>;
  readonly holder: (body: HolderBody) => Holder;
}

/** A recorded change as it was written. What waited for canaries waits no more: upstream says it again. */
export function decodeChange(row: Row, context: ChangeContext): Change {
  const { names, releasedAt, ...change } = changeBody.parse(JSON.parse(row.body ?? ''));
  const type = typeUrl(row.type);
  const keeps = change.upstream === '' || context.keeps(change.upstream);
  return {
    ...change,
    revision: Number(row.key),
    type,
    releasedAt,
    names: names.map((name) => changedName(type, name, keeps, context)),
  };
}

function changedName(
  type: TypeUrl,
  { name: text, change, bytes, verdict, before, after }: ChangeBody['names'][number],
  keeps: boolean,
  context: ChangeContext,
): ChangedName {
  const name = resourceName(text);
  const common = { name, change, bytes, verdict: verdict === 'PENDING' ? 'REPLACED' : verdict } as const;
  if (!keeps || before === undefined || after === undefined) return { ...common, content: undefined };
  const contentOf = (bodies: readonly VariantBody[]): Content =>
    bodies.map((body) => heldVariant(type, name, body, context));
  return { ...common, content: { before: contentOf(before), after: contentOf(after) } };
}

function heldVariant(
  type: TypeUrl,
  name: ResourceName,
  body: VariantBody,
  { variant: read, holder }: ChangeContext,
): Content[number] {
  const restored = read(body);
  const { version, constraints, payload, aliases, metadata } = restored;
  const deltaVersion = deltaVersionOf(version, constraints, payload, aliases, metadata);
  const variant = { ...restored, type, name, deltaVersion, revision: revision(0) };
  return { variant, holders: body.holders.map(holder) };
}
