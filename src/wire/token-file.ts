import { attempt, fail, type Result } from '../model/result.ts';
import { readNamedSync } from './named-file.ts';
import { explainError } from './node-error.ts';

/** No space, and nothing that is not ASCII: RFC 6750 has fewer characters still. */
const token = /^[\x21-\x7e]+$/;

/**
 * The token in a file, for `authorization: Bearer …`. Line breaks and spaces around it do not count. The error never
 * says what is in the file. Synchronous: a file of a few KB, for each stream that is opened.
 */
export function readToken(file: string): Result<string> {
  const text = attempt(() => readNamedSync(file).toString().trim(), explainError);
  if (!text.ok) return fail(`${file} cannot be read: ${text.error}`);
  if (token.test(text.value)) return text;
  return fail(
    `${file} ${text.value === '' ? 'is empty' : 'has more than one token'}: it must have exactly one`,
  );
}
