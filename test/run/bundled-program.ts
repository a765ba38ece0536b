/** What the tests' command has instead of src/program.ts: the same, bundled into one script. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { constants, Script } from 'node:vm';

/** All of src/, as a function of what a CommonJS module is given. */
export const script = 'program.cjs';

const compiledFile = (file: string): string => `${file}.compiled`;

interface Loaded {
  readonly program: () => Promise<void>;
  /** V8's code of all functions that have run, and the file where the next start finds it. */
  readonly compiled: () => { readonly file: string; readonly code: Buffer };
}

/**
 * Loads the script, as V8 has compiled it already. Node's own compile cache has only what is compiled before a module runs,
 * here a quarter.
 */
export function loadScript(file: string): Loaded {
  const compiled = compiledFile(file);
  const loaded = new Script(readFileSync(file, 'latin1'), {
    filename: file,
    ...(existsSync(compiled) ? { cachedData: readFileSync(compiled) } : {}),
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  const module: { exports: { program?: Loaded['program'] } } = { exports: {} };
  const wrapper: unknown = loaded.runInThisContext();
  if (typeof wrapper === 'function')
    Reflect.apply(wrapper, undefined, [createRequire(file), module, module.exports, file, dirname(file)]);
  const { program } = module.exports;
  if (program === undefined) throw new Error(`${file} is no bundle of the relay`);
  return { program, compiled: () => ({ file: compiled, code: loaded.createCachedData() }) };
}

export const program = (): Promise<void> => loadScript(join(import.meta.dirname, script)).program();
