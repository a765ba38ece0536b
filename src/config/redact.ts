import { withoutUserinfo } from '../model/text.ts';
import { type Path, pathText } from './source.ts';

const redacted = '[redacted]';

/** Keys of free-form metadata whose values are taken for secrets. */
const secretKey = /pass(word|wd|phrase)|secret|token|credential|api[-_]?key|private[-_]?key|authorization/i;

/**
 * The configuration as /config_dump may show it: the file's keys, every default filled in.
 * - What came from the environment is shown as the file has it (`${NAME}`), never by its value.
 * - User and password in a URL are redacted wherever they stand, and so is anything that looks like PEM.
 * - Below node.metadata, which is free-form, values of keys that sound like secrets are redacted.
 * - Values of headers for control planes are redacted.
 * - The other keys hold no secrets: private_key and the like are paths of files, and are kept.
 *
 * `templates` are the strings that came from the environment, by `pathText`.
 */
export function describeConfig(file: unknown, templates: ReadonlyMap<string, string>): unknown {
  return describe(file, [], templates);
}

function describe(value: unknown, path: Path, templates: ReadonlyMap<string, string>): unknown {
  const key = path.at(-1);
  const freeForm = path[0] === 'node' && path[1] === 'metadata' && path.length > 2;
  if (freeForm && typeof key === 'string' && secretKey.test(key)) return redacted;
  if (path[0] === 'upstreams' && path[2] === 'ads' && path[3] === 'headers' && path.length === 5)
    return redacted;
  const template = templates.get(pathText(path));
  if (template !== undefined) return withoutSecrets(template);
  if (typeof value === 'string') return withoutSecrets(value);
  if (Array.isArray(value))
    return value.map((item: unknown, index) => describe(item, [...path, index], templates));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, describe(item, [...path, name], templates)]),
  );
}

function withoutSecrets(text: string): string {
  if (text.includes('-----BEGIN ')) return redacted;
  return withoutUserinfo(text);
}
