import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  visit as visitNodes,
} from 'yaml';
import {
  type ConfigProblem,
  locate,
  type Path,
  type Position,
  pathText,
  type SourceRange,
  type UnplacedProblem,
} from './source.ts';

/**
 * Bounds for what anchors and aliases may unfold to. Problems count as nodes: an alias repeats them too. Characters are those
 * of all values and of the path of each: a long key is in the paths of all that is below it.
 */
const mostNodes = 100_000;
const mostDepth = 64;
const mostCharacters = 16_000_000;

/** Undefined: it is nested too deeply for the parser's own recursion. */
function documentOf(text: string, lines: LineCounter): Document.Parsed | undefined {
  try {
    // Duplicate keys are found below, where their path is known.
    return parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: false });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/**
 * Reads YAML 1.2 (so JSON too) as plain values, before the schema is applied, and replaces references to the environment in
 * its strings. `value` undefined: the text is not YAML. `templates`: the strings that came from the environment, by
 * `pathText`, as the file has them.
 */
export function parseText(text: string, environment: Environment) {
  const lines = new LineCounter();
  const document = documentOf(text, lines);
  if (document === undefined) {
    return broken({ line: 1, column: 1, message: `is nested deeper than ${mostDepth} levels` });
  }
  const at = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  // After the first error the parser has lost its place: what it reports from there on is mostly not there.
  const [syntax] = [...document.errors, ...document.warnings].toSorted((a, b) => a.pos[0] - b.pos[0]);
  if (syntax !== undefined) {
    const { code, message, pos } = syntax;
    return broken({ ...at(pos[0]), message: syntaxMessage(code, message, text, pos[0]) });
  }

  const targets = targetsOf(document);
  const places = new Map<string, SourceRange>();
  const templates = new Map<string, string>();
  const expansions = new Map<string, ReturnType<typeof expand>>();
  const complaints: UnplacedProblem[] = [];
  const ofKeys: ConfigProblem[] = [];
  let nodes = 0;
  let characters = 0;
  let exceeded = false;

  const exceededBound = (path: Path): string | undefined => {
    if (path.length > mostDepth) return `is nested deeper than ${mostDepth} levels`;
    if (nodes > mostNodes) return `has more than ${mostNodes} entries`;
    return characters > mostCharacters
      ? `has more than ${mostCharacters} characters in its values and their paths`
      : undefined;
  };

  /** False: a bound has been passed, which is said once, and nothing more is read. */
  const counts = (path: Path): boolean => {
    if (exceeded) return false;
    nodes++;
    const bound = exceededBound(path);
    exceeded = bound !== undefined;
    if (exceeded)
      complaints.push({ path: path.slice(0, 3), message: `${bound} (an alias inside its own anchor?)` });
    return !exceeded;
  };

  const complain = (problem: UnplacedProblem): void => {
    if (counts([])) complaints.push(problem);
  };

  const complainOfKey = (path: Path, start: Position, message: string): void => {
    if (counts([])) ofKeys.push({ path: pathText(path), ...start, message });
  };

  const visit = (node: unknown, path: Path, key: Position | undefined): unknown => {
    if (!counts(path)) return null;
    const target = isAlias(node) ? targets.get(node) : node;
    if (isAlias(node) && target === undefined) {
      complain({
        path,
        message: `*${node.source} is an alias without an anchor: there is no &${node.source} above it`,
      });
    }
    const value = rangeStart(node);
    const where = pathText(path);
    characters += where.length;
    places.set(where, {
      key,
      value: value === undefined ? (key ?? { line: 1, column: 1 }) : at(value),
      collection: isMap(target) || isSeq(target),
    });
    if (isMap(target)) return mapping(target.items, path);
    if (isSeq(target)) return sequence(target.items, path);
    return isScalar(target) ? scalar(target.value, path) : null;
  };

  const sequence = (items: readonly unknown[], path: Path): unknown => {
    const entries: unknown[] = [];
    for (const [index, item] of items.entries()) {
      if (exceeded) break;
      entries.push(visit(item, [...path, index], undefined));
    }
    return entries;
  };

  const mapping = (pairs: readonly Pair[], path: Path): unknown => {
    const entries = new Map<string, unknown>();
    for (const pair of pairs) {
      if (exceeded) break;
      const name = isScalar(pair.key) ? pair.key.value : undefined;
      const start = at(rangeStart(pair.key) ?? 0);
      if (typeof name !== 'string') {
        complainOfKey(path, start, 'a key is not a string: quote it');
        continue;
      }
      const inner = [...path, name];
      const first = entries.has(name) ? places.get(pathText(inner))?.key : undefined;
      if (first !== undefined) {
        const message = `duplicate key: it is first in line ${first.line}`;
        complainOfKey(inner, start, message);
        continue;
      }
      if (name === '__proto__') {
        complain({ path: inner, message: 'the key "__proto__" is not allowed', aboutKey: true });
        places.set(pathText(inner), { key: start, value: start, collection: false });
        continue;
      }
      entries.set(name, visit(pair.value, inner, start));
    }
    return Object.fromEntries(entries);
  };

  const scalar = (value: unknown, path: Path): unknown => {
    if (typeof value === 'number' && !Number.isFinite(value)) {
      complain({ path, message: `${value} is not a JSON number` });
    }
    if (typeof value !== 'string') return value;
    const expanded = expansions.get(value) ?? expand(value, environment);
    expansions.set(value, expanded);
    characters += expanded.text.length;
    for (const message of expanded.failures) complain({ path, message });
    if (expanded.substituted) templates.set(pathText(path), value);
    return expanded.text;
  };

  const value = visit(document.contents, [], undefined);
  const problems = [...ofKeys, ...complaints.map((complaint) => locate(complaint, places))];
  return { value, places, templates, problems };
}

const broken = (problem: Omit<ConfigProblem, 'path'>) => ({
  value: undefined,
  places: new Map<string, SourceRange>(),
  templates: new Map<string, string>(),
  problems: [{ path: '', ...problem }],
});

/** What each alias stands for: the last node before it with that anchor. `Alias.resolve` reads all for each. */
function targetsOf(document: Document): ReadonlyMap<Alias, Node> {
  const anchors = new Map<string, Node>();
  const targets = new Map<Alias, Node>();
  visitNodes(document, {
    Node: (_key, node) => {
      const target = isAlias(node) ? anchors.get(node.source) : undefined;
      if (isAlias(node) && target !== undefined) targets.set(node, target);
      if (!isAlias(node) && node.anchor !== undefined) anchors.set(node.anchor, node);
    },
  });
  return targets;
}

function rangeStart(node: unknown): number | undefined {
  return isNode(node) ? (node.range?.[0] ?? undefined) : undefined;
}

const isNode = (node: unknown): node is Node => isAlias(node) || isMap(node) || isSeq(node) || isScalar(node);

function syntaxMessage(code: string, message: string, text: string, offset: number): string {
  if (code === 'MULTIPLE_DOCS') return 'the file has more than one document: only one is accepted';
  const line = text.slice(text.lastIndexOf('\n', offset - 1) + 1).split('\n', 1)[0] ?? '';
  const unquoted = code === 'UNEXPECTED_TOKEN' && line.includes('${');
  return `not valid YAML: ${message}${unquoted ? ' (inside {} or [] a reference such as "${NAME}" needs quotes)' : ''}`;
}

/** The process's environment, or a test's. */
export type Environment = Readonly<Record<string, string | undefined>>;

const reference = /\$\$\{|\$\{(?:(?<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?<fallback>[^}]*))?\})?/g;

/**
 * Replaces `${NAME}` and `${NAME:-default}` (taken when NAME is unset or empty, as in a shell); `$${` stands for the
 * characters `${`. What was put in is not expanded again. `substituted`: the text has a reference to the environment,
 * whether or not the variable is set. `failures`: one message for each reference that failed; what follows one of which
 * the end is not known is not read.
 */
export function expand(text: string, environment: Environment) {
  const failures: string[] = [];
  let substituted = false;
  let result = '';
  let end = 0;
  for (const match of text.matchAll(reference)) {
    result += text.slice(end, match.index);
    end = match.index + match[0].length;
    const name = match.groups?.['name'];
    if (match[0] === '$${') {
      result += '${';
    } else if (name === undefined) {
      failures.push(
        '"${" begins a reference to the environment: use ${NAME} or ${NAME:-default}; write $${ for a literal ${',
      );
      // Each further one would be searched for its end up to the end of the text.
      break;
    } else {
      substituted = true;
      const fallback = match.groups?.['fallback'];
      if (fallback?.includes('${') === true) {
        failures.push(
          `the default of \${${name}} may not contain "\${": a default is plain text, and ends with the first "}"`,
        );
        break;
      }
      const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
      if (value === undefined && fallback === undefined) {
        failures.push(
          `the environment variable ${name} is not set: set it, or give a default as in \${${name}:-default}`,
        );
      }
      result += (fallback === undefined ? value : value || fallback) ?? '';
    }
  }
  return { text: result + text.slice(end), substituted, failures };
}
