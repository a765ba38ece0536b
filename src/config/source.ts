import { withoutPasswords } from '../model/text.ts';

/** A step into the file: a key of a mapping or an index of a list. */
export type Path = readonly (string | number)[];

/** From 1, as editors count. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** One thing wrong with a configuration. `path` is as in `upstreams[0].ads.endpoints`; empty for the whole file. */
export interface ConfigProblem extends Position {
  readonly path: string;
  readonly message: string;
}

/** Something wrong at a path, before it is known where in the file that is. */
export interface UnplacedProblem {
  readonly path: Path;
  readonly message: string;
  /** It is about the key, not its value. */
  readonly aboutKey?: boolean;
}

/** Where an entry is: its key (list items have none), and its value. */
export interface SourceRange {
  readonly key: Position | undefined;
  readonly value: Position;
  /** A mapping or a list: errors about it as a whole are shown at its key. */
  readonly collection: boolean;
}

/** `a.b[0]["c.d"]`. Injective, so it serves as a key too. */
export function pathText(path: Path): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else if (!/^[\w$-]+$/.test(step)) text += `[${JSON.stringify(step)}]`;
    else text += text === '' ? step : `.${step}`;
  }
  return text;
}

/** The position of a path or, where the file does not have it, of the nearest thing around it. */
export function locate(complaint: UnplacedProblem, places: ReadonlyMap<string, SourceRange>): ConfigProblem {
  const { path } = complaint;
  const message = withoutPasswords(complaint.message);
  for (let length = path.length; length >= 0; length--) {
    const place = places.get(pathText(path.slice(0, length)));
    if (place === undefined) continue;
    const atKey = complaint.aboutKey === true || place.collection || length < path.length;
    const { line, column } = (atKey ? place.key : undefined) ?? place.value;
    return { path: pathText(path), line, column, message };
  }
  return { path: pathText(path), line: 1, column: 1, message };
}

/** `FILE:LINE:COL: path: message`: the form that editors and terminals make links of. `mark`: before the path. */
export function problemLine(
  file: string,
  { line, column, path, message }: ConfigProblem,
  mark: '' | 'warning' | 'hint' = '',
): string {
  const said = [mark, path, message].filter((part) => part !== '');
  return `${file}:${line}:${column}: ${said.join(': ')}`;
}
