/**
 * Says where in src/ the places of a stack are: node scripts/stack.ts [DIRECTORY] < LOG
 *
 * DIRECTORY has the build that wrote the log, with its source maps; left out: dist/.
 */
import { existsSync, readFileSync } from 'node:fs';
import { SourceMap, type SourceMapPayload } from 'node:module';
import { join, relative, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';

const root = join(import.meta.dirname, '..');
const directory = resolve(process.argv[2] ?? join(root, 'dist'));
/** As V8 writes a place, in a text or in the JSON of a log. */
const place = /[^\s("]*?([\w-]+\.cjs):(\d+):(\d+)/g;
const maps = new Map<string, SourceMap | undefined>();

function mapOf(script: string): SourceMap | undefined {
  const file = join(directory, `${script}.map`);
  if (!maps.has(script)) maps.set(script, existsSync(file) ? new SourceMap(payloadOf(file)) : undefined);
  return maps.get(script);
}

const payloadOf = (file: string): SourceMapPayload =>
  z.custom<SourceMapPayload>().parse(JSON.parse(readFileSync(file, 'utf8')));

for await (const line of createInterface({ input: process.stdin })) {
  const shown = line.replace(place, (all, script: string, row: string, column: string) => {
    const found = mapOf(script)?.findEntry(Number(row) - 1, Number(column) - 1);
    if (found === undefined || !('originalSource' in found)) return all;
    const source = relative(root, resolve(directory, found.originalSource));
    return `${source}:${found.originalLine + 1}:${found.originalColumn + 1}`;
  });
  process.stdout.write(`${shown}\n`);
}
