import { createPrivateKey, type KeyObject, type X509Certificate } from 'node:crypto';
import { mkdtempSync, readdirSync, rmdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { attempt, fail, ok, type Result } from '../model/result.ts';
import { readNamedSync, readToken } from '../wire/named-file.ts';
import { explainError } from '../wire/node-error.ts';
import { checkTicketSecret, parseAuthorities, parseCertificates } from '../wire/tls-material.ts';
import { read, readList, readText } from './schema-parts.ts';
import type { Path, UnplacedProblem } from './source.ts';

/**
 * The files that a configuration names: the directories of resources can be listed, certificates and keys parse and
 * belong together, a token is one. It reads the raw values, so it works even if others are wrong. Synchronous: for the start, a reload
 * and `validate`.
 */
export const checkNamedFiles = (file: unknown): readonly UnplacedProblem[] =>
  [...mappings(file)].flatMap(([path, own]) =>
    [
      path.at(-1) === 'tls' ? checkTls(path, own) : [],
      path.at(-1) === 'filesystem' ? checkFile([...path, 'path'], own, listed) : [],
      checkFile([...path, 'token_file'], own, readToken),
      checkFile([...path, 'hmac_file'], own, readToken),
    ].flat(),
  );

/** What is below these keys may have any keys. */
const freeForm: ReadonlySet<string> = new Set(['metadata', 'headers']);

/** All of a file: what names files has the same key wherever it stands. */
function* mappings(value: unknown, path: Path = []): Iterable<readonly [Path, unknown]> {
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) yield [path, value];
  for (const [key, inner] of Object.entries(value))
    if (!freeForm.has(key)) yield* mappings(inner, [...path, Array.isArray(value) ? Number(key) : key]);
}

/**
 * Certificates that have expired. Only `validate` asks: a relay serves with them, and warns. `now`: milliseconds since
 * the epoch.
 */
export function checkExpiry(file: unknown, now: number): readonly UnplacedProblem[] {
  return [...mappings(file)].flatMap(([path, tls]) => {
    const certificate = path.at(-1) === 'tls' ? named(tls, 'certificate') : undefined;
    const chain = certificate === undefined ? undefined : readCertificates(certificate);
    const until = chain?.ok === true ? chain.value[0]?.validToDate : undefined;
    if (until === undefined || until.getTime() > now) return [];
    const message = `${certificate} has expired: it was valid until ${until.toISOString()}`;
    return [{ path: [...path, 'certificate'], message }];
  });
}

/**
 * Whether the cache can be written to disk. Only `validate` asks: a relay serves on without its disk, and tries again.
 * Directories that are not there yet are made, so the nearest one that is there counts.
 */
export function checkPersistence(file: unknown): readonly UnplacedProblem[] {
  const path = ['cache', 'persistence', 'path'];
  const directory = named(read(read(file, 'cache'), 'persistence'), 'path');
  if (directory === undefined) return [];
  for (let at = resolve(directory); ; at = dirname(at)) {
    try {
      const found = statSync(at, { throwIfNoEntry: false });
      if (found === undefined && at !== dirname(at)) continue;
      if (found?.isDirectory() !== true) return [{ path, message: `${at} is not a directory` }];
      rmdirSync(mkdtempSync(join(at, '.validate-'))); // rights do not tell: a file system may be read-only
      return [];
    } catch (error) {
      return [{ path, message: `${at} cannot be written: ${explainError(error)}` }];
    }
  }
}

/** The directories of resources, without those that cannot be listed. */
export const resourceDirectories = (file: unknown): readonly string[] =>
  readList(file, 'upstreams')
    .flatMap((upstream) => named(read(upstream, 'filesystem'), 'path') ?? [])
    .filter((directory) => listed(directory).ok);

/** The schema reports an empty one. */
const named = (value: unknown, key: string): string | undefined => readText(value, key) || undefined;

function checkTls(path: Path, tls: unknown): readonly UnplacedProblem[] {
  const [certificate, privateKey] = [named(tls, 'certificate'), named(tls, 'private_key')];
  return [
    ...(certificate === undefined || privateKey === undefined
      ? []
      : checkPair(path, certificate, privateKey)),
    ...checkFile([...path, 'ca'], tls, (file) => readCertificates(file, parseAuthorities)),
    ...checkFile([...path, 'session_ticket_secret_file'], tls, (file) => parsedFile(file, checkTicketSecret)),
  ];
}

/** The file that the last key of the path names, if it does. */
function checkFile(
  path: Path,
  mapping: unknown,
  readFile: (file: string) => Result<unknown>,
): readonly UnplacedProblem[] {
  const file = named(mapping, String(path.at(-1)));
  const found = file === undefined ? ok(file) : readFile(file);
  return found.ok ? [] : [{ path, message: found.error }];
}

function checkPair(path: Path, certificate: string, privateKey: string): readonly UnplacedProblem[] {
  const certificates = readCertificates(certificate);
  const key = readPrivateKey(privateKey);
  const complaints: UnplacedProblem[] = [];
  if (!certificates.ok) complaints.push({ path: [...path, 'certificate'], message: certificates.error });
  if (!key.ok) complaints.push({ path: [...path, 'private_key'], message: key.error });
  if (certificates.ok && key.ok && certificates.value[0]?.checkPrivateKey(key.value) !== true) {
    const message = `${privateKey} is not the key of the first certificate in ${certificate}`;
    complaints.push({ path: [...path, 'private_key'], message });
  }
  return complaints;
}

function listed(directory: string): Result<unknown> {
  const found = attempt(() => readdirSync(directory), explainError);
  return found.ok ? found : fail(`${directory} cannot be listed: ${found.error}`);
}

/** At least one. */
const readCertificates = (file: string, parse = parseCertificates): Result<readonly X509Certificate[]> =>
  parsedFile(file, (content) => parse(content.toString(), file));

const readPrivateKey = (file: string): Result<KeyObject> =>
  parsedFile(file, (content) => {
    const key = attempt(() => createPrivateKey(content), explainError);
    if (key.ok) return key;
    return fail(`${file} has no PEM private key that can be used without a password: ${key.error}`);
  });

function parsedFile<T>(file: string, parse: (content: Buffer, file: string) => Result<T>): Result<T> {
  const content = attempt(() => readNamedSync(file), explainError);
  return content.ok ? parse(content.value, file) : fail(`${file} cannot be read: ${content.error}`);
}
