import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run, type Spawn } from './process.ts';

const version = '1.85.1';
const sources = join(import.meta.dirname, '../java');

/** The client on grpc-java, whose libraries are fetched once with Maven; the error says why there is none. */
export async function grpcJavaClient(): Promise<Result<Spawn>> {
  const libraries = join(cached('grpc-java'), version);
  try {
    await run({ command: 'java', args: ['-version'] });
    if (!existsSync(libraries)) await fetch(libraries);
  } catch (error) {
    return fail(`grpc-java ${version} needs a JDK from 17 and Maven: ${String(error)}`);
  }
  const source = join(sources, 'GrpcClient.java');
  return ok({ command: 'java', args: ['-cp', join(libraries, '*'), source, version] });
}

async function fetch(libraries: string): Promise<void> {
  const work = mkdtempSync(`${libraries}-`);
  try {
    const what = [`-Dgrpc.version=${version}`, '-DincludeScope=runtime', `-DoutputDirectory=${work}`];
    const args = ['-q', '-B', '-f', join(sources, 'pom.xml'), ...what, 'dependency:copy-dependencies'];
    await run({ command: 'mvn', args });
    renameSync(work, libraries);
  } catch (error) {
    rmSync(work, { recursive: true, force: true });
    throw error;
  }
}
