import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run, type Spawn } from './process.ts';

const version = '1.85.1';
const program = join(import.meta.dirname, '../python/grpc_client.py');

/** The client on grpcio, which is fetched once with pip; the error says why there is none. */
export async function grpcioClient(): Promise<Result<Spawn>> {
  const packages = join(cached('grpcio'), version);
  const client = { command: 'python3', args: [program], env: { PYTHONPATH: packages } };
  if (existsSync(packages)) return ok(client);
  const work = mkdtempSync(`${packages}-`);
  try {
    const install = ['install', '--quiet', '--only-binary', ':all:', '--target', work, `grpcio==${version}`];
    await run({ command: 'python3', args: ['-m', 'pip', ...install] });
    renameSync(work, packages);
    return ok(client);
  } catch (error) {
    rmSync(work, { recursive: true, force: true });
    return fail(`grpcio ${version} needs Python with pip, and its wheel for this platform: ${String(error)}`);
  }
}
