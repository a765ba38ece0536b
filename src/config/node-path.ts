import { nodePath, parseShown, templateKeys } from '../model/node-path.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { anyOf, expectedText } from '../model/suggest.ts';

/** The paths into a node that a parameter rule can read (`from`) and write (`to`). */
const writable = [
  'node.id',
  'node.cluster',
  'node.locality.region',
  'node.locality.zone',
  'node.locality.sub_zone',
];
const readable = [
  ...writable,
  'node.user_agent_name',
  'node.user_agent_version',
  'peer.uri_san',
  'peer.dns_san',
];
const metadata = 'node.metadata.';

/** Below `node.metadata`, any keys; one with dots in brackets and quotes. */
function checkPath(text: string, known: readonly string[]): Result<string> {
  if (known.includes(text)) return ok(text);
  const [part, ...keys] = nodePath(text) ?? [];
  if (part === 'metadata' && keys.length > 0) return ok(text);
  return fail(expectedText(anyOf([`${metadata}KEY.KEY…`, 'node.metadata["KEY"]', ...known]), text));
}

export const checkFrom = (text: string): Result<string> => checkPath(text, readable);

/** `PATH`, or `PATH=TEMPLATE` with the keys of parameters in `${}`. */
export function checkTo(text: string): Result<string> {
  const { path, template } = parseShown(text);
  const checked = checkPath(path, writable);
  if (!checked.ok) return checked;
  return template === '' ? fail(`${JSON.stringify(text)} has no template after "="`) : ok(text);
}

/** The keys that a `to` names and no rule has. */
export function unknownKeys(to: string, keys: readonly (string | undefined)[]): readonly string[] {
  return templateKeys(parseShown(to).template ?? '').filter((key) => !keys.includes(key));
}

/** Where a rule writes that does not say so. */
export const defaultTo = (key: string): string => metadata + key;

/** One is the other, or a part of it: they cannot both be written. */
export function pathsClash(a: string, b: string): boolean {
  const [left, right] = [a, b].map((to) => nodePath(parseShown(to).path) ?? []);
  if (left === undefined || right === undefined) return false;
  const shared = Math.min(left.length, right.length);
  return shared > 0 && left.slice(0, shared).every((step, index) => step === right[index]);
}
