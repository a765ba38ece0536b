import { readFileSync, type Stats, statSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { attempt, fail, type Result } from '../model/result.ts';
import { explainError } from './node-error.ts';

/** Certificates, keys and tokens have a few KB, and the authorities of the web 0.2 MB. */
const most = 16 * 2 ** 20;

/**
 * A certificate, key, secret or token that the configuration names, which is read again and again. Throws, also if it is a
 * pipe or a device: to open one can take for ever, and with it one of Node's four threads for files and names.
 */
export async function readNamed(path: string): Promise<Buffer> {
  check(await stat(path));
  return readFile(path);
}

/** The same at once: a file of a few KB. */
export function readNamedSync(path: string): Buffer {
  check(statSync(path));
  return readFileSync(path);
}

function check(found: Stats): void {
  if (!found.isFile() && !found.isDirectory())
    throw new Error('it is no regular file: pipes and devices are not read');
  if (found.size > most) throw new Error(`it has ${found.size} bytes: at most ${most} are read`);
}

/** No space, and nothing that is not ASCII: RFC 6750 has fewer characters still. */
const token = /^[\x21-\x7e]+$/;

/** Somebody may have written the token itself where its file is to be named: that must be in no log. */
const mayBeToken = (file: string): boolean =>
  !/^\.{0,2}\//.test(file) || basename(file).length > longestName || /\s/.test(file);
const longestName = 39;
const notAFile = 'the file, which must be named by its path (is this the token itself?),';

/**
 * The token in a file, for `authorization: Bearer …`. Line breaks and spaces around it do not count. The error never
 * says what is in the file. Synchronous: a file of a few KB, for each stream that is opened.
 */
export function readToken(file: string): Result<string> {
  const text = attempt(() => readNamedSync(file).toString().trim(), explainError);
  if (!text.ok) return fail(`${mayBeToken(file) ? notAFile : file} cannot be read: ${text.error}`);
  if (token.test(text.value)) return text;
  return fail(
    `${file} ${text.value === '' ? 'is empty' : 'has more than one token'}: it must have exactly one`,
  );
}
