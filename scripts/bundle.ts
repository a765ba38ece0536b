/** Bundles src/ with esbuild: into the single executable, and for the tests. */
import { basename, join } from 'node:path';
import { type BuildOptions, build, type Metafile } from 'esbuild';

const root = join(import.meta.dirname, '..');

/** Its packages are no ES modules in part: these, where there are both, and what nobody uses stays out. */
export const settings = {
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

/** Relative to the file of the bundle, and not to the module. */
export const commonjs = {
  format: 'cjs',
  define: { 'import.meta.filename': '__filename', 'import.meta.dirname': '__dirname' },
} as const satisfies BuildOptions;

/** The entry of a process or a thread as one file of ES modules. */
export async function bundleModule(entry: string, outfile: string): Promise<Metafile> {
  return (await build({ ...settings, entryPoints: [entry], outfile, format: 'esm', banner: requires }))
    .metafile;
}

/** What packages that are no ES modules call. Node has it not in an ES module, and no file is beside the executable. */
const requires = {
  js: `import { createRequire as createRequireOfBuiltins } from 'node:module';
const require = createRequireOfBuiltins(process.execPath);`,
};

/** The threads' programs, by their file's name. */
export async function bundleThreads(directory: string): Promise<Readonly<Record<string, string>>> {
  const entries = ['src/cache/persistence/disk-thread.ts', 'src/observe/watchdog-thread.ts'];
  const outputs = entries.map((entry) => `${basename(entry, '.ts')}.cjs`);
  await build({
    ...settings,
    ...commonjs,
    entryPoints: entries,
    entryNames: '[name]',
    outdir: directory,
    outExtension: { '.js': '.cjs' },
  });
  return Object.fromEntries(outputs.map((name) => [name, join(directory, name)]));
}
