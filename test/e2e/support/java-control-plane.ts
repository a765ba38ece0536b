import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run, type Spawn } from './process.ts';
import { recipePath } from './recipe.ts';

const version = '1.0.49';

/** The recipe's control plane, whose libraries are fetched once with Maven; the error says why there is none. */
export async function javaControlPlane(): Promise<Result<Spawn>> {
  const libraries = join(cached('java-control-plane'), version);
  try {
    await run({ command: 'java', args: ['-version'] });
    if (!existsSync(libraries)) await fetch(libraries);
  } catch (error) {
    return fail(`java-control-plane ${version} needs a JDK from 17 and Maven: ${String(error)}`);
  }
  const source = join(recipePath('java-control-plane'), 'ControlPlane.java');
  return ok({ command: 'java', args: ['-cp', join(libraries, '*'), source] });
}

async function fetch(libraries: string): Promise<void> {
  const work = mkdtempSync(`${libraries}-`);
  try {
    const what = ['-DincludeScope=runtime', `-DoutputDirectory=${work}`, 'dependency:copy-dependencies'];
    const pom = join(recipePath('java-control-plane'), 'pom.xml');
    await run({ command: 'mvn', args: ['-q', '-B', '-f', pom, ...what] });
    renameSync(work, libraries);
  } catch (error) {
    rmSync(work, { recursive: true, force: true });
    throw error;
  }
}
