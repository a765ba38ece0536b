import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run } from './process.ts';

const sources = join(import.meta.dirname, '../go');
const built = new Map<string, Promise<Result<string>>>();

/** Path of a program of `test/e2e/go` or of another module, built once; the error says why there is none. */
export function goBinary(name: string, module: string = sources): Promise<Result<string>> {
  const key = join(module, name);
  const found = built.get(key) ?? build(name, module);
  built.set(key, found);
  return found;
}

async function build(name: string, module: string): Promise<Result<string>> {
  const binary = join(cached('e2e'), name);
  try {
    await run({ command: 'go', args: ['build', '-buildvcs=false', '-o', binary, `./${name}`], cwd: module });
    return existsSync(binary) ? ok(binary) : fail(`go built no ${name}`);
  } catch (error) {
    return fail(`${name} of the tests needs Go and its modules: ${String(error)}`);
  }
}
