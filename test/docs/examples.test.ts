import { expect } from 'chai';
import { parse as parseYaml } from 'yaml';
import { z } from 'zod';
import { parse } from '../../src/commands/command.ts';
import { commands } from '../../src/commands/commands.ts';
import { publishedSchema } from '../../src/config/json-schema.ts';
import { parseConfig } from '../../src/config/load.ts';
import { withoutEffect } from '../../src/config/warnings.ts';
import { jsonToBytes } from '../../src/wire/registry.ts';
import { blocksOf, pages, proseOf } from './page.ts';

const keys = Object.keys(z.object({ properties: z.looseObject({}) }).parse(publishedSchema()).properties);
const upstreams = [{ name: 'any', filesystem: { path: '.' } }];

/** What a YAML block has at its top, if it is nothing but keys of the configuration. */
function configurationOf(text: string): Readonly<Record<string, unknown>> | undefined {
  const parsed = z.record(z.string(), z.unknown()).safeParse(parseYaml(text));
  const isConfiguration = parsed.success && Object.keys(parsed.data).every((key) => keys.includes(key));
  return isConfiguration ? parsed.data : undefined;
}

/** Command lines that begin with `distributary`: in shell blocks, and in backticks. */
function* commandLines(page: string): Iterable<string> {
  for (const { info, text } of blocksOf(page)) {
    if (!/^(sh|console)\b/.test(info)) continue;
    for (const line of text.replaceAll(/\\\n/g, ' ').split('\n')) {
      const [, command] = /^\s*(?:[$] )?(distributary .*)$/.exec(line) ?? [];
      if (command !== undefined) yield command;
    }
  }
  for (const [, code = ''] of proseOf(page).matchAll(/`(distributary [^`]*)`/g)) yield code;
}

/** What a reader sets before typing; a word with another name is any text. */
const variables = new Map([
  ['TYPE', 'rds'],
  ['REV', '2'],
  ['BEFORE', '1'],
  ['PARAM', 'env=prod'],
]);

/** Its words, without comments and what the shell does. */
function wordsOf(typed: string): readonly string[] {
  const line = typed.replaceAll(/\$([A-Z_]+)/g, (_, name: string) => variables.get(name) ?? name);
  const words = line.match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
  const end = words.findIndex((word) => /^(#.*|\d?>.*|&|\|.*|;)$/.test(word));
  return words.slice(1, end === -1 ? undefined : end).map((word) => word.replaceAll(/^["']|["']$/g, ''));
}

describe('examples in the documents', () => {
  it('are configurations that validate accepts, whole or in part', () => {
    const wrong: string[] = [];
    let count = 0;
    for (const page of pages) {
      for (const { info, text } of blocksOf(page)) {
        if (info !== 'yaml' && info !== 'yaml relay') continue;
        const found = configurationOf(text);
        if (found === undefined && info === 'yaml') continue;
        count += 1;
        const whole = info === 'yaml relay' ? text : JSON.stringify({ upstreams, ...found });
        const parsed = parseConfig(whole, page, {});
        // A part may need what the rest of a file has.
        const problems = parsed.ok
          ? info === 'yaml'
            ? []
            : withoutEffect(parsed.value.source.value)
          : parsed.error;
        if (problems.length > 0)
          wrong.push(`${page}: ${problems.map(({ message }) => message).join('; ')}\n${text}`);
      }
    }
    expect(wrong).to.deep.equal([]);
    expect(count).to.be.above(15);
  });

  it('are transport sockets that Envoy knows', () => {
    const block = blocksOf('docs/how-to/mutual-tls.md').find(({ info }) => info === 'yaml transport-socket');
    const { transport_socket: socket } = z
      .object({ transport_socket: z.json() })
      .parse(parseYaml(block?.text ?? ''));
    const read = jsonToBytes('envoy.config.core.v3.TransportSocket', socket);
    expect(read.ok || read.error).to.equal(true);
  });

  it('are commands that exist, with flags that they have', () => {
    const wrong: string[] = [];
    let count = 0;
    for (const page of pages) {
      for (const line of commandLines(page)) {
        const [name = '', ...rest] = wordsOf(line);
        if (!/^[a-z]/.test(name)) continue; // COMMAND, --version or an ellipsis
        count += 1;
        const command = commands.find((one) => one.name === name);
        const read = command && parse(rest, command.flags, command.operands?.most);
        if (read?.ok !== true) wrong.push(`${page}: ${line}: ${read?.error ?? 'no such command'}`);
      }
    }
    expect(wrong).to.deep.equal([]);
    expect(count).to.be.above(50);
  });
});
