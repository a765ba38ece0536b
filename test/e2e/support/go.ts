import { copyFileSync, existsSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { built, cached } from './paths.ts';
import { run } from './process.ts';

const sources = join(import.meta.dirname, '../go');
const found = new Map<string, Promise<Result<string>>>();
/** One build after another: side by side, each would compile the modules that they share. */
let lastBuild: Promise<unknown> = Promise.resolve();

/**
 * Path of a program of `test/e2e/go` or of another module, built once; the error says why there is none. `from`: its
 * package, if it is not the module's folder of that name. `workspace`: a file of the module that says what else it is built
 * with.
 */
export function goBinary(
  name: string,
  module: string = sources,
  from = `./${name}`,
  workspace?: string,
): Promise<Result<string>> {
  const key = join(module, name);
  let binary = found.get(key);
  if (binary === undefined) {
    binary = lastBuild.then(() => build(name, module, from, workspace));
    lastBuild = binary;
    found.set(key, binary);
  }
  return binary;
}

async function build(
  name: string,
  module: string,
  from: string,
  workspace: string | undefined,
): Promise<Result<string>> {
  const binary = join(built(), name);
  // `npm test` has built it, for all of its processes.
  if (process.env['TESTS_ARE_PREPARED'] !== undefined && existsSync(binary)) return ok(binary);
  const own = `${binary}-${process.pid}`;
  const kept = join(cached('go'), name);
  try {
    // Go links it again only if it is not what this clone's sources make: linking is nearly all of a build's time.
    if (existsSync(kept)) copyFileSync(kept, own);
    await run({
      command: 'go',
      args: ['build', '-buildvcs=false', '-trimpath', '-o', own, from],
      cwd: module,
      env: workspace === undefined ? {} : { GOWORK: join(module, workspace) },
    });
    keep(own, kept);
    renameSync(own, binary);
    return ok(binary);
  } catch (error) {
    return fail(`${name} of the tests needs Go and its modules: ${String(error)}`);
  }
}

/** For the next clone; another that does the same meanwhile finds one or the other, whole. */
function keep(own: string, kept: string): void {
  const copy = `${kept}-${process.pid}`;
  copyFileSync(own, copy);
  renameSync(copy, kept);
}
