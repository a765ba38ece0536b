import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { bundleMain, bundleScripts, bundleThreads, compileScripts } from '../../scripts/bundle.ts';
import { root } from './report.ts';

/**
 * The relay as it is in dist/: some hundred relays and workers of the tests start from it, in a third of the CPU that their
 * hundreds of files take. The path of its command.
 */
export async function bundleRelay(): Promise<string> {
  const directory = join(root, '.cache/relay');
  rmSync(directory, { recursive: true, force: true });
  await bundleMain({ outdir: directory });
  await bundleScripts(directory);
  await bundleThreads(directory, { whole: false });
  compileScripts(directory);
  return join(directory, 'main.js');
}
