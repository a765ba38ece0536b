import { fail, ok, type Result } from '../model/result.ts';

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

/** Below `node.metadata`, any keys; a key that itself has a dot cannot be named. */
function checkPath(text: string, known: readonly string[]): Result<string> {
  if (known.includes(text)) return ok(text);
  const keys = text.startsWith(metadata) ? text.slice(metadata.length).split('.') : [''];
  if (keys.every((key) => key !== '')) return ok(text);
  return fail(
    `${JSON.stringify(text)} is not accepted here: accepted are ${metadata}KEY.KEY…, ${known.join(', ')}`,
  );
}

export const checkFrom = (text: string): Result<string> => checkPath(text, readable);
export const checkTo = (text: string): Result<string> => checkPath(text, writable);

/** Where a rule writes that does not say so. */
export const defaultTo = (key: string): string => metadata + key;

/** One is the other, or a part of it: they cannot both be written. */
export function pathsClash(a: string, b: string): boolean {
  return a === b || a.startsWith(`${b}.`) || b.startsWith(`${a}.`);
}
