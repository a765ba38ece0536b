import { existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { outcome, run } from './process.ts';

const fetched = new Map<string, Promise<Result<string>>>();

/** The directory of a Debian package's programs, fetched once with apt; the error says why there is none. */
export function debianBinaries(name: string): Promise<Result<string>> {
  const found = fetched.get(name) ?? fetch(name);
  fetched.set(name, found);
  return found;
}

async function fetch(name: string): Promise<Result<string>> {
  const directory = cached(name);
  const binaries = join(directory, 'bin');
  if (existsSync(binaries)) return ok(binaries);
  const work = mkdtempSync(join(directory, 'fetch-'));
  try {
    const known = await outcome({ command: 'apt-get', args: ['download', name], cwd: work });
    if (known.code !== 0) await downloadWithOwnLists(name, work);
    const archive = globSync(join(work, '*.deb'))[0] ?? '';
    await run({ command: 'dpkg-deb', args: ['--extract', archive, work] });
    renameSync(join(work, 'usr/bin'), binaries);
    return ok(binaries);
  } catch (error) {
    return fail(`${name} needs apt and this package of Debian or Ubuntu: ${String(error)}`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Where the machine's lists of packages are missing or old, as in most containers. Needs no rights. */
async function downloadWithOwnLists(name: string, work: string): Promise<void> {
  const own = ['lists', 'cache'].map((folder) => {
    const path = join(work, folder);
    mkdirSync(join(path, 'partial'), { recursive: true });
    return path;
  });
  const options = [`Dir::State::Lists=${own[0]}`, `Dir::Cache=${own[1]}`, 'Debug::NoLocking=1'];
  const args = options.flatMap((option) => ['-o', option]);
  await run({ command: 'apt-get', args: [...args, 'update'], cwd: work });
  await run({ command: 'apt-get', args: [...args, 'download', name], cwd: work });
}
