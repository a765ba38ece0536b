import type { JsonValue } from '@bufbuild/protobuf';
import { counted } from '../model/text.ts';
import type { Pace } from '../model/time-slices.ts';
import { yamlText } from '../observe/yaml-text.ts';

/** What is shown of a difference: YAML costs most, so each field is written by itself. */
const most = { fields: 10_000, characters: 4 << 20 };
/** What has more characters as JSON, and is on one side only, is shown part by part. */
const longestPart = 16 << 10;

/**
 * The fields that differ, as YAML: each path with what it was and what it is. A field that one side does not have has no
 * `from` or no `to`.
 *
 *     connect_timeout: { from: 1s, to: 5s }
 */
export async function fieldDifferences(from: JsonValue, to: JsonValue, pace: Pace): Promise<string> {
  const parts: string[] = [];
  let [characters, left] = [0, 0];
  for (const [path, difference] of differences('', from, to)) {
    await pace.yieldIfDue();
    if (parts.length >= most.fields || characters >= most.characters) {
      left++;
      continue;
    }
    const text = yamlText(new Map([[path, difference]]));
    parts.push(text);
    characters += text.length;
  }
  return left === 0 ? parts.join('') : `${parts.join('')}# and ${counted(left, 'more field')}\n`;
}

type Difference = { readonly from?: JsonValue; readonly to?: JsonValue };
type Found = readonly [path: string, Difference];

function* differences(path: string, from: JsonValue, to: JsonValue): Iterable<Found> {
  if (Array.isArray(from) && Array.isArray(to)) {
    for (let index = 0; index < Math.max(from.length, to.length); index++) {
      yield* ofPart(`${path}[${index}]`, from[index], to[index]);
    }
  } else if (isObject(from) && isObject(to)) {
    for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
      yield* ofPart(path === '' ? key : `${path}.${key}`, from[key], to[key]);
    }
  } else if (from !== to) yield [path, { from, to }];
}

function* ofPart(path: string, from: JsonValue | undefined, to: JsonValue | undefined): Iterable<Found> {
  const only = from ?? to;
  if (from !== undefined && to !== undefined) yield* differences(path, from, to);
  else if (only !== undefined && isLong(only))
    yield* differences(path, from ?? emptyAs(only), to ?? emptyAs(only));
  else if (only !== undefined) yield [path, from === undefined ? { to: only } : { from: only }];
}

const isLong = (value: JsonValue): boolean =>
  typeof value === 'object' && value !== null && JSON.stringify(value).length > longestPart;
const emptyAs = (value: JsonValue): JsonValue => (Array.isArray(value) ? [] : {});

function isObject(json: JsonValue): json is { [key: string]: JsonValue } {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}
