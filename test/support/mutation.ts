import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** One line of the relay, made wrong on purpose. */
export interface Mutation {
  readonly name: string;
  readonly file: string;
  readonly right: string;
  readonly wrong: string;
}

const root = new URL('../..', import.meta.url).pathname;

/** Runs a script of a copy of the sources in which one line is wrong. */
export function runMutated(
  { name, file, right, wrong }: Mutation,
  script: string,
  args: readonly string[],
): SpawnSyncReturns<string> {
  const copy = mkdtempSync(join(tmpdir(), 'mutation-'));
  try {
    for (const part of ['src', 'test', 'package.json'])
      cpSync(join(root, part), join(copy, part), { recursive: true });
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    const source = readFileSync(join(copy, file), 'utf8');
    if (!source.includes(right)) throw new Error(`"${name}": ${file} has no ${right} any more`);
    writeFileSync(join(copy, file), source.replaceAll(right, wrong));
    return spawnSync(process.execPath, [join(copy, script), ...args], { encoding: 'utf8' });
  } finally {
    rmSync(copy, { recursive: true });
  }
}
