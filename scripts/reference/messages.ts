import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseSync } from '@swc/core';

// The texts of the program, read from where they are written: a list by hand would soon be another one.

const root = join(import.meta.dirname, '../..');

export interface Message {
  /** What the text is part of: a level of the log, a gRPC status, a kind of problem. */
  readonly of: string;
  /** What is filled in is in braces, as in `upstream {name} is unreachable`. */
  readonly text: string;
}

interface Messages {
  readonly log: Message[];
  readonly refusals: Message[];
  readonly problems: Message[];
  /** Of `validate`, `run` and the other commands: about the configuration, and about the command line. */
  readonly configuration: string[];
  readonly commands: string[];
}

/** A node of the syntax tree. */
interface Node {
  readonly type: string;
  readonly [key: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';

const nodes = (value: unknown): readonly Node[] => (Array.isArray(value) ? value.filter(isNode) : []);

/** Constants by name, the innermost scope last. */
type Scopes = readonly ReadonlyMap<string, Node>[];

/** Everything that every file says. */
export function messages(): Messages {
  const found: Messages = { log: [], refusals: [], problems: [], configuration: [], commands: [] };
  const files = globSync('src/**/*.ts', { cwd: root, exclude: ['src/gen/**'] }).toSorted();
  for (const file of files) {
    const tree: unknown = parseSync(readFileSync(join(root, file), 'utf8'), { syntax: 'typescript' });
    if (isNode(tree)) new Reader(file, found).visit(tree, []);
  }
  const { configuration, commands } = found;
  return {
    log: sorted(found.log),
    refusals: sorted(found.refusals),
    problems: sorted(found.problems),
    configuration: [...new Set(configuration)].toSorted(),
    commands: [...new Set(commands)].toSorted(),
  };
}

function sorted(all: readonly Message[]): Message[] {
  const distinct = new Map(all.map((one) => [JSON.stringify([one.of, one.text]), one]));
  return [...distinct.values()].toSorted((a, b) => (a.text.toLowerCase() < b.text.toLowerCase() ? -1 : 1));
}

const levels = new Set(['info', 'warn', 'error']);

/** What several files take from one: the status of the refusal that it makes. */
const imported: ReadonlyMap<string, string> = new Map([
  ['malformed', 'INVALID_ARGUMENT'],
  ['invalid', 'INVALID_ARGUMENT'],
  ['denied', 'PERMISSION_DENIED'],
]);

class Reader {
  readonly #found: Messages;
  /** What `fail` and its like say here is for whoever wrote the configuration, or typed the command. */
  readonly #told: string[] | undefined;
  /** Functions of this file that make a refusal of a text, and with which status. */
  readonly #refuses = new Map([['exhausted', 'RESOURCE_EXHAUSTED']]);

  constructor(file: string, found: Messages) {
    this.#found = found;
    if (file.startsWith('src/config/')) this.#told = found.configuration;
    if (file.startsWith('src/commands/')) this.#told = found.commands;
  }

  visit(node: Node, outer: Scopes): void {
    const statements = nodes(node['body'] ?? node['stmts']);
    const scopes = statements.length === 0 ? outer : [...outer, this.#constants(statements)];
    if (node.type === 'ImportDeclaration')
      for (const { local } of nodes(node['specifiers'])) {
        const status = imported.get(nameOf(local));
        if (status !== undefined) this.#refuses.set(nameOf(local), status);
      }
    if (node.type === 'CallExpression') this.#call(node, scopes);
    if (node.type === 'NewExpression') this.#made(node, scopes);
    if (node.type === 'ObjectExpression') this.#object(node, scopes);
    for (const child of Object.values(node)) this.#into(child, scopes);
  }

  /** Arguments, elements of lists and methods are in objects that are no nodes themselves. */
  #into(value: unknown, scopes: Scopes): void {
    if (isNode(value)) this.visit(value, scopes);
    else if (typeof value === 'object' && value !== null)
      for (const child of Object.values(value)) this.#into(child, scopes);
  }

  #constants(statements: readonly Node[]): ReadonlyMap<string, Node> {
    const known = new Map<string, Node>();
    for (const statement of statements) {
      const declared = isNode(statement['declaration']) ? statement['declaration'] : statement;
      for (const { id, init } of nodes(declared['declarations'])) {
        if (!isNode(id) || typeof id['value'] !== 'string' || !isNode(init)) continue;
        known.set(id['value'], init);
        const status = statusMadeBy(init);
        if (status !== undefined) this.#refuses.set(id['value'], status);
      }
    }
    return known;
  }

  #call(node: Node, scopes: Scopes): void {
    const given = argumentsOf(node);
    const callee = node['callee'];
    const name = nameOf(callee);
    // log.warn('text'), and conditions.set(key, reason, 'warn', 'text') and its like.
    const object = isNode(callee) && callee.type === 'MemberExpression' ? nameOf(callee['object']) : '';
    if (levels.has(name) && /log$/i.test(object)) this.#say('log', name, given[0], scopes);
    for (const [index, argument] of given.entries()) {
      const level = argument.type === 'StringLiteral' ? String(argument['value']) : '';
      if (levels.has(level)) this.#say('log', level, given[index + 1], scopes);
    }
    const status = this.#refuses.get(name);
    if (status !== undefined) this.#say('refusals', status, given[name === 'exhausted' ? 1 : 0], scopes);
    if (name === 'problem') this.#problem(given, scopes);
    if (['fail', 'addIssue'].includes(name)) this.#tell(given[0], scopes);
  }

  #made(node: Node, scopes: Scopes): void {
    const [text, status] = argumentsOf(node);
    const name = nameOf(node['callee']);
    if (name === 'UsageError') this.#tell(text, scopes);
    if (name !== 'ConnectError' || status === undefined) return;
    this.#say(
      'refusals',
      nameOf(status)
        .replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_')
        .toUpperCase(),
      text,
      scopes,
    );
  }

  #object(node: Node, scopes: Scopes): void {
    const { code, message, level, kind } = propertiesOf(node);
    if (message === undefined) return;
    const status = statusOf(code);
    if (status !== undefined) this.#say('refusals', status, message, scopes);
    if (kind?.['value'] === 'log' && typeof level?.['value'] === 'string')
      this.#say('log', level['value'], message, scopes);
    if (status === undefined && level === undefined) this.#tell(message, scopes);
  }

  #problem([kind, , known]: readonly Node[], scopes: Scopes): void {
    if (known === undefined || typeof kind?.['value'] !== 'string') return;
    this.#say('problems', kind['value'], propertiesOf(known)['title'], scopes);
  }

  #tell(node: Node | undefined, scopes: Scopes): void {
    if (node !== undefined) this.#told?.push(...textsOf(node, scopes).filter(isSentence));
  }

  #say(where: 'log' | 'refusals' | 'problems', of: string, node: Node | undefined, scopes: Scopes): void {
    if (node === undefined) return;
    for (const text of textsOf(node, scopes).filter(isSentence)) this.#found[where].push({ of, text });
  }
}

/** What is passed on from elsewhere has no words of its own. */
const isSentence = (text: string): boolean => /[a-z]{2,}/.test(text.replaceAll(/\{[^}]*\}|--[a-z]+/g, ''));

const argumentsOf = (node: Node): readonly Node[] =>
  (Array.isArray(node['arguments']) ? node['arguments'] : []).flatMap((argument: unknown) =>
    typeof argument === 'object' &&
    argument !== null &&
    'expression' in argument &&
    isNode(argument.expression)
      ? [argument.expression]
      : [],
  );

/** `warn` of `this.#log.warn`, `#log` of `this.#log`. */
function nameOf(value: unknown): string {
  if (!isNode(value)) return '';
  if (value.type === 'MemberExpression') return nameOf(value['property']);
  if (value.type === 'PrivateName') return nameOf(value['id']) || String(value['value']);
  return typeof value['value'] === 'string' ? value['value'] : '';
}

/** By name; of a shorthand the name itself. */
function propertiesOf(node: Node): Readonly<Record<string, Node>> {
  const known = nodes(node['properties']).flatMap((property): readonly (readonly [string, Node])[] => {
    if (property.type === 'Identifier') return [[nameOf(property), property]];
    const value = property['value'];
    return isNode(value) ? [[nameOf(property['key']), value]] : [];
  });
  return Object.fromEntries(known);
}

/** NOT_FOUND of Code.NOT_FOUND. */
function statusOf(value: Node | undefined): string | undefined {
  const isCode = value?.type === 'MemberExpression' && nameOf(value['object']).endsWith('Code');
  return isCode ? nameOf(value['property']) : undefined;
}

/** Of a function `(message) => ({ code: Code.NOT_FOUND, message })`. */
function statusMadeBy({ type, params, body }: Node): string | undefined {
  if (type !== 'ArrowFunctionExpression' || !nodes(params).some((one) => nameOf(one) === 'message'))
    return undefined;
  const made = isNode(body) && body.type === 'ParenthesisExpression' ? body['expression'] : body;
  return isNode(made) && made.type === 'ObjectExpression' ? statusOf(propertiesOf(made)['code']) : undefined;
}

/** The texts that an expression can be; none where it comes from elsewhere. */
function textsOf(node: Node, scopes: Scopes): readonly string[] {
  switch (node.type) {
    case 'StringLiteral':
      return [String(node['value'])];
    case 'TemplateLiteral':
      return [templateOf(node, scopes)];
    case 'ConditionalExpression':
      return [node['consequent'], node['alternate']].filter(isNode).flatMap((one) => textsOf(one, scopes));
    case 'ParenthesisExpression':
      return isNode(node['expression']) ? textsOf(node['expression'], scopes) : [];
    case 'Identifier': {
      const constant = constantOf(node, scopes);
      return constant === undefined ? [] : textsOf(constant, scopes);
    }
    case 'CallExpression': {
      const phrase = phrases.get(nameOf(node['callee']));
      return phrase === undefined ? [] : [phrase(argumentsOf(node).map((one) => filledIn(one, scopes)))];
    }
    default:
      return [];
  }
}

const constantOf = (node: Node, scopes: Scopes): Node | undefined =>
  scopes.findLast((scope) => scope.has(nameOf(node)))?.get(nameOf(node));

/** What src/model/text.ts and types.ts make of what they are given. */
const phrases: ReadonlyMap<string, (given: readonly string[]) => string> = new Map([
  ['anyOf', ([words = '']) => words],
  ['expectedText', ([expected = '', got = '']) => `expected ${expected}, got ${got}`],
  ['unknownWord', ([kind = '', word = '', known = '']) => `unknown ${kind} ${word}: expected ${known}`],
  ['unknownType', ([word = '']) => `unknown type ${word}: expected {types}`],
]);

function templateOf(node: Node, scopes: Scopes): string {
  const values = nodes(node['expressions']).map((value) => filledIn(value, scopes));
  return nodes(node['quasis'])
    .map(({ cooked }, index) => `${String(cooked)}${values[index] ?? ''}`)
    .join('');
}

/** A text of its own, or the name of what is filled in. */
function filledIn(value: Node, scopes: Scopes): string {
  if (value.type === 'ConditionalExpression') {
    const either = textsOf(value, scopes);
    if (either.length > 1 && !either.includes('')) return either.join('/');
  }
  const meant = value.type === 'Identifier' ? (constantOf(value, scopes) ?? value) : value;
  const [text] = ['StringLiteral', 'TemplateLiteral', 'CallExpression'].includes(meant.type)
    ? textsOf(meant, scopes)
    : [];
  return text ?? `{${labelOf(value)}}`;
}

/** The name that it has in the code. */
function labelOf(value: Node): string {
  if (value.type !== 'CallExpression') return nameOf(value) || '…';
  const { callee } = value;
  const [first, second] = argumentsOf(value);
  // `{clients}` of counted(3, 'client').
  if (second?.type === 'StringLiteral') return `${String(second['value'])}s`;
  const object = isNode(callee) && callee.type === 'MemberExpression' ? callee['object'] : undefined;
  const isMethod = isNode(object) && !/^[A-Z]/.test(nameOf(object));
  const named = isMethod ? object : first;
  return named === undefined || named.type.endsWith('FunctionExpression') ? nameOf(callee) : labelOf(named);
}
