import { type ExecFileSyncOptions, execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stagePages } from './stage-pages.ts';

const root = join(import.meta.dirname, '../..');
const quiet: ExecFileSyncOptions = { stdio: ['ignore', 'ignore', 'inherit'] };
const environment = join(root, '.cache/docs-generator');

/** The generator that docs/site/requirements.txt names, installed by pip unless it is. Throws without Python or pip. */
export function installGenerator(): void {
  execFileSync('python3', ['-m', 'venv', environment], quiet);
  const requirements = join(root, 'docs/site/requirements.txt');
  const args = ['install', '--quiet', '--disable-pip-version-check', '--requirement', requirements];
  execFileSync(join(environment, 'bin/pip'), args, quiet);
}

/** Writes the site. Throws if a link, or a part of the navigation, leads nowhere: the generator has said which. */
export function buildSite(output: string): void {
  const stage = mkdtempSync(join(tmpdir(), 'distributary-docs-'));
  try {
    const config = stagePages(root, stage);
    const args = ['build', '--strict', '--config-file', config];
    execFileSync(join(environment, 'bin/zensical'), args, quiet);
    rmSync(output, { recursive: true, force: true });
    cpSync(join(stage, 'site'), output, { recursive: true });
  } finally {
    rmSync(stage, { recursive: true, force: true });
  }
}
