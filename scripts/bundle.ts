/**
 * Bundles src/ with esbuild into the scripts of dist/, of the single executable and of the tests (ADR 184).
 *
 * A script is one function, with all that its modules import. What is loaded later is another script: with modules that are
 * run later inside, what the others share would be no constant for V8.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename, join, relative, resolve } from 'node:path';
import { type BuildOptions, build, type Metafile, type Plugin } from 'esbuild';

const root = join(import.meta.dirname, '..');

/**
 * The modules that others load when they need them, by script. Two scripts share nothing, so that no object of a class goes
 * from one to another.
 */
const scripts: Readonly<Record<string, readonly string[]>> = {
  'program.cjs': ['src/program.ts', 'src/commands/command-line.ts'],
  'relay.cjs': [
    'src/commands/serve.ts',
    'src/commands/demo.ts',
    'src/workers/worker-serving.ts',
    'src/workers/main.ts',
  ],
  'commands.cjs': ['src/commands/commands.ts'],
  'traces.cjs': ['src/observe/otlp-spans.ts'],
};
const threads = ['src/cache/persistence/disk-thread.ts', 'src/observe/watchdog-thread.ts'];
/** What a thread loads when it needs it. */
const ofThreads = 'src/observe/log.ts';

const outputOf = (module: string): string => `${basename(module, '.ts')}.cjs`;

/** Its packages are no ES modules in part: these, where there are both, and what nobody uses stays out. */
const settings = {
  absWorkingDir: root,
  bundle: true,
  platform: 'node',
  target: 'node24',
  mainFields: ['module', 'main'],
  legalComments: 'none', // they are in LICENSES.txt
  // Memory of each process: its text, with the comments, would be a third more. Names and short lines are for stack traces.
  minifyWhitespace: true,
  lineLimit: 120,
  metafile: true,
  logLevel: 'warning',
} as const satisfies BuildOptions;

const commonjs = {
  ...settings,
  format: 'cjs',
  // Of the file of the bundle, and not of the module.
  define: { 'import.meta.filename': '__filename', 'import.meta.dirname': '__dirname' },
  supported: { 'dynamic-import': false }, // it is require(): of scripts/bundled-program.ts, in a thread Node's
  sourcemap: 'external', // for scripts/stack.ts
  sourcesContent: false,
} as const satisfies BuildOptions;

/** `import()` of a module of src/ is that of the file that has it. */
const loads = (fileOf: (module: string) => string | undefined): Plugin => ({
  name: 'loads',
  setup: (bundler) => {
    bundler.onResolve({ filter: /^\./ }, ({ kind, path, resolveDir }) => {
      const module = relative(root, resolve(resolveDir, path));
      if (kind !== 'dynamic-import' || !module.startsWith('src/')) return undefined;
      const file = fileOf(module);
      if (file === undefined)
        throw new Error(`${module} is loaded later: no script of scripts/bundle.ts has it`);
      return { path: `./${file}`, external: true };
    });
  },
});

const scriptOf = (module: string): string | undefined =>
  Object.keys(scripts).find((name) => scripts[name]?.includes(module) === true);

export interface Bundled {
  /** Files in the directory. */
  readonly names: readonly string[];
  /** Of each, what is in it. */
  readonly metafiles: readonly Metafile[];
}

/** The scripts. */
export async function bundleScripts(directory: string): Promise<Bundled> {
  const names = Object.keys(scripts);
  const metafiles: Metafile[] = [];
  for (const [name, modules] of Object.entries(scripts)) {
    const outfile = join(directory, name);
    const contents = modules.map((module) => `export * from './${module}';`).join('\n');
    const { metafile } = await build({
      ...commonjs,
      stdin: { contents, resolveDir: root },
      outfile,
      plugins: [loads(scriptOf)],
      banner: { js: "(function (require, module, exports, __filename, __dirname) {'use strict';" },
      footer: { js: '})' },
    });
    // It is read as Latin-1, which V8 need not decode.
    if (/[^\0-\u{7f}]/u.test(readFileSync(outfile, 'latin1'))) throw new Error(`${outfile} is not ASCII`);
    metafiles.push(metafile);
  }
  return { names, metafiles };
}

/** The programs of threads. In the executable each is one text: a thread cannot load its files. */
export async function bundleThreads(directory: string, { whole }: { whole: boolean }): Promise<Bundled> {
  const entryPoints = whole ? threads : [...threads, ofThreads];
  const { metafile } = await build({
    ...commonjs,
    entryPoints,
    entryNames: '[name]',
    outdir: directory,
    outExtension: { '.js': '.cjs' },
    plugins: whole ? [] : [loads((module) => (module === ofThreads ? outputOf(module) : undefined))],
  });
  return { names: entryPoints.map(outputOf), metafiles: [metafile] };
}

/** What is run: src/main.ts, with what loads the scripts in place of src/program.ts. In one file for the executable. */
export async function bundleMain(output: Pick<BuildOptions, 'outdir' | 'outfile'>): Promise<void> {
  const program = join(root, 'scripts/bundled-program.ts');
  const apart = output.outdir !== undefined;
  await build({
    ...settings,
    ...output,
    // A Node that is too old could not read the other file.
    splitting: apart,
    entryPoints: apart ? { main: 'src/main.ts', program } : ['src/main.ts'],
    format: 'esm',
    plugins: [
      {
        name: 'program',
        setup: (bundler) => {
          bundler.onResolve({ filter: /^\.\/program\.ts$/ }, () => ({ path: program }));
        },
      },
    ],
  });
}

/** What V8 compiles of the scripts of a directory goes beside them, for the next starts on this Node. */
export function compileScripts(directory: string): void {
  // With so small a heap a relay sets no flags (src/external-memory.ts). V8 takes code only with the flags it was made with.
  const args = ['--max-old-space-size=1024', join(root, 'scripts/compile-scripts.ts'), directory];
  execFileSync(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
}
