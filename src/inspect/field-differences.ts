import type { JsonValue } from '@bufbuild/protobuf';
import { yamlText } from '../observe/yaml-text.ts';

type Difference = { readonly from?: JsonValue; readonly to?: JsonValue };

/**
 * The fields that differ, as YAML: each path with what it was and what it is. A field that one side does not have has no
 * `from` or no `to`.
 *
 *     connect_timeout: { from: 1s, to: 5s }
 */
export function fieldDifferences(from: JsonValue, to: JsonValue): string {
  const found = new Map<string, Difference>();
  compare('', from, to, found);
  return found.size === 0 ? '' : yamlText(found);
}

function compare(path: string, from: JsonValue, to: JsonValue, found: Map<string, Difference>): void {
  if (Array.isArray(from) && Array.isArray(to)) {
    for (let index = 0; index < Math.max(from.length, to.length); index++) {
      compareParts(`${path}[${index}]`, from[index], to[index], found);
    }
  } else if (isObject(from) && isObject(to)) {
    for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
      compareParts(path === '' ? key : `${path}.${key}`, from[key], to[key], found);
    }
  } else if (from !== to) found.set(path, { from, to });
}

function compareParts(
  path: string,
  from: JsonValue | undefined,
  to: JsonValue | undefined,
  found: Map<string, Difference>,
): void {
  if (from === undefined) {
    if (to !== undefined) found.set(path, { to });
  } else if (to === undefined) found.set(path, { from });
  else compare(path, from, to, found);
}

function isObject(json: JsonValue): json is { [key: string]: JsonValue } {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}
