import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fail, ok, type Result } from '../model/result.ts';
import { redacted, withoutUserinfo } from '../model/text.ts';
import { explainError } from '../wire/node-error.ts';
import { checkExpiry, checkNamedFiles, checkPersistence } from './check-files.ts';
import type { Config } from './config.ts';
import { type Environment, parseText } from './document.ts';
import { withDefaults } from './json-schema.ts';
import { coerce, problemsOf } from './problems.ts';
import { fileSchema } from './schema.ts';
import { type ConfigProblem, locate, type Path, pathText, type UnplacedProblem } from './source.ts';
import { withoutEffect } from './warnings.ts';

/**
 * Reads and checks a configuration and the files that it names: all of it, or every problem in the order of the file.
 */
export function loadConfig(
  file: string,
  environment: Environment,
  text = readConfigText(file),
): Result<Config, readonly ConfigProblem[]> {
  if (!text.ok) return fail([unreadable(text.error)]);
  return settled(parse(text.value, file, environment, checkNamedFiles));
}

/** The file as it is; the error says why it cannot be read. */
export function readConfigText(file: string): Result<string> {
  try {
    return ok(readFileSync(file, 'utf8'));
  } catch (error) {
    return fail(`cannot be read: ${explainError(error)}`);
  }
}

/** A problem of the whole file. */
export const unreadable = (message: string): ConfigProblem => ({ path: '', line: 1, column: 1, message });

/** Code for each object of the schema, which Zod would make and compile, pays for more than the few that are read. */
const readOnce = { jitless: true };

/** The same without a look at the files that it names. */
export const parseConfig = (
  text: string,
  file: string,
  environment: Environment,
): Result<Config, readonly ConfigProblem[]> => settled(parse(text, file, environment, () => []));

/**
 * `loadConfig` for `validate`: it asks whether the disk can be written, certificates have expired and all has an effect,
 * too, and goes on past problems. `now`: milliseconds since the epoch.
 */
export const examineConfig = (text: string, file: string, environment: Environment, now: number) =>
  parse(text, file, environment, (value) => [
    ...checkNamedFiles(value),
    ...checkPersistence(value),
    ...checkExpiry(value, now),
    ...withoutEffect(value),
  ]);

const settled = ({ problems, config }: ReturnType<typeof parse>): Result<Config, readonly ConfigProblem[]> =>
  config === undefined || problems.length > 0 ? fail(problems) : ok(config);

/**
 * The same configuration as JSON, with its references to the environment replaced, for a process with another environment.
 * Headers for control planes are left out: they may be secrets.
 */
export function withoutReferences(text: string, environment: Environment): string {
  const { value, templates } = parseText(text, environment);
  const read = fileSchema.safeParse(value, readOnce);
  if (!read.success) coerce(read.error, value, templates);
  const json = JSON.stringify(value, (key, part: unknown) =>
    key === 'ads' && typeof part === 'object' ? { ...part, headers: undefined } : part,
  );
  // As a string, `$$` would stand for a single `$`.
  return json.replaceAll('${', () => '$${');
}

/**
 * `config` undefined: the schema refuses it. There may be problems beside it, with the files that it names. `value`: its
 * plain values, before the schema.
 */
function parse(
  text: string,
  file: string,
  environment: Environment,
  alsoCheck: (file: unknown) => readonly UnplacedProblem[],
) {
  const document = parseText(text, environment);
  const { value, places, templates } = document;
  if (value === undefined) return { problems: document.problems, config: undefined, value };
  if (value === null) {
    const problems = [unreadable('the file is empty: at least upstreams is required')];
    return { problems, config: undefined, value: undefined };
  }

  let parsed = fileSchema.safeParse(value, readOnce);
  if (!parsed.success && templates.size > 0) {
    coerce(parsed.error, value, templates);
    parsed = fileSchema.safeParse(value, readOnce);
  }
  const found = [...(parsed.success ? [] : problemsOf(parsed.error, value)), ...alsoCheck(value)];
  const problems = merge(
    document.problems,
    found.map((complaint) => locate(complaint, places)),
  );
  if (!parsed.success) return { problems, config: undefined, value };
  let dump: unknown;
  const source = {
    file,
    text,
    value,
    digest: digest(text),
    places,
    // Made when somebody looks: the schema has to be translated for it.
    get dump(): unknown {
      dump ??= describe(withDefaults(value), [], templates);
      return dump;
    },
  };
  return { problems, config: { ...parsed.data, source }, value };
}

/** Tells versions of a file apart. */
export const digest = (text: string): string => hash('sha256', text);

/**
 * In the file's order. A value with a problem in its text, such as an unset variable, is not reported again for its
 * syntax.
 */
function merge(
  ofText: readonly ConfigProblem[],
  ofValues: readonly ConfigProblem[],
): readonly ConfigProblem[] {
  const place = ({ path, line, column }: ConfigProblem): string => pathText([path, line, column]);
  const taken = new Set(ofText.map(place));
  const others = ofValues.filter((problem) => !taken.has(place(problem)));
  return [...ofText, ...others].toSorted((a, b) => a.line - b.line || a.column - b.column);
}

/** Keys of free-form metadata whose values are taken for secrets. */
const secretKey = /pass(word|wd|phrase)|secret|token|credential|api[-_]?key|private[-_]?key|authorization/i;

/**
 * The configuration as /config_dump may show it: the file's keys, every default filled in.
 * - What came from the environment is shown as the file has it (`${NAME}`), never by its value.
 * - User and password in a URL are redacted wherever they stand, and so is anything that looks like PEM.
 * - Below node.metadata, which is free-form, values of keys that sound like secrets are redacted.
 * - Values of headers for control planes are redacted, and of webhooks what follows the host: Slack has a secret there.
 * - Of the URLs of other servers the query is redacted.
 * - The other keys hold no secrets: private_key and the like are paths of files, and are kept.
 *
 * `templates` are the strings that came from the environment, by `pathText`.
 */
function describe(value: unknown, path: Path, templates: ReadonlyMap<string, string>): unknown {
  if (isSecret(path)) return redacted;
  const template = templates.get(pathText(path));
  if (template !== undefined) return isSecretUrl(path) ? redacted : shown(template, path);
  if (typeof value === 'string') return isSecretUrl(path) ? hostOf(value) : shown(value, path);
  if (Array.isArray(value))
    return value.map((item: unknown, index) => describe(item, [...path, index], templates));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, describe(item, [...path, name], templates)]),
  );
}

function isSecret(path: Path): boolean {
  const [section, , part, field] = path;
  const key = path.at(-1);
  if (section === 'node' && path[1] === 'metadata' && path.length > 2)
    return typeof key === 'string' && secretKey.test(key);
  return section === 'upstreams' && part === 'ads' && field === 'headers' && path.length === 5;
}

/** A webhook's path or query may be all that it asks for. */
const isSecretUrl = (path: Path): boolean =>
  path.at(-1) === 'url' && (path[1] === 'notify' || path.at(-2) === 'webhook');

/** The query of any other server's URL may be a key. */
const shown = (text: string, path: Path): string =>
  path[0] !== 'node' && /^(?:url|otlp_endpoint)$/.test(String(path.at(-1)))
    ? withoutSecrets(text).replace(/\?.*/s, `?${redacted}`)
    : withoutSecrets(text);

const hostOf = (url: string): string => `${URL.parse(url)?.origin ?? ''}/${redacted}`;

function withoutSecrets(text: string): string {
  if (text.includes('-----BEGIN ')) return redacted;
  return withoutUserinfo(text);
}
