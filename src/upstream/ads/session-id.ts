import { createHash } from 'node:crypto';
import type { Parameters } from '../../model/parameters.ts';

/** A longer value, once escaped, becomes its beginning and a hash. */
const longestValue = 64;
const keptLength = 36;
/** Base64url of SHA-256: 132 bits, so nobody finds a second value with the same one. */
const hashLength = 22;

/**
 * The node id of a session of PER_PARAMETERS: `<id>~<values>`, the values in the order of the rules' keys. It is unique
 * to the parameter set, because control planes keep what they have for a node under its id. An absent value is left
 * empty, at the end it is left out: a rule more at the end changes no id.
 */
export function sessionId(id: string, keys: readonly string[], parameters: Parameters): string {
  const values = [...new Set(keys)].map((key) => part(parameters.entries.get(key)));
  while (values.at(-1) === '') values.pop();
  return [id, ...values].join('~');
}

/** Escaped values hold no `~` and no `*`, and no `%` that does not begin an escape: so no two values look the same. */
function part(value: string | undefined): string {
  if (value === undefined) return '';
  if (value === '') return '%';
  const text = escape(value.toWellFormed());
  if (text.length <= longestValue) return text;
  const hash = createHash('sha256').update(value).digest('base64url').slice(0, hashLength);
  return `${text.slice(0, keptLength).replace(/%.?$/, '')}*${hash}`;
}

function escape(value: string): string {
  return value.replace(/[^\w./:@+-]/gu, (character) =>
    [...Buffer.from(character)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  );
}
