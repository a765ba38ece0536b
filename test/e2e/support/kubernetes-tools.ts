import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached } from './paths.ts';
import { run, type Spawn } from './process.ts';

const helmVersion = 'v3.22.0';
const validateVersion = '1.37.0';
/** Helm that was built with `go install` does not know its version, and takes itself for an old cluster. */
export const kubernetesVersion = '1.37.0';

/** Path of Helm, built once from its Go module; the error says why there is none. */
export async function helmBinary(): Promise<Result<string>> {
  const directory = join(cached('helm'), helmVersion);
  const binary = join(directory, 'helm');
  if (existsSync(binary)) return ok(binary);
  try {
    const args = ['install', `helm.sh/helm/v3/cmd/helm@${helmVersion}`];
    await run({ command: 'go', args, env: { GOBIN: directory } });
    return ok(binary);
  } catch (error) {
    return fail(`Helm ${helmVersion} needs Go and its modules: ${String(error)}`);
  }
}

/** kubernetes-validate, which brings the schemas of Kubernetes' own objects; fetched once with pip. */
export async function kubernetesValidate(): Promise<Result<Spawn>> {
  const packages = join(cached('kubernetes-validate'), validateVersion);
  const args = ['-m', 'kubernetes_validate'];
  const program = { command: 'python3', args, env: { PYTHONPATH: packages } };
  if (existsSync(packages)) return ok(program);
  const work = mkdtempSync(`${packages}-`);
  try {
    const what = ['--quiet', '--target', work, `kubernetes-validate==${validateVersion}`];
    await run({ command: 'python3', args: ['-m', 'pip', 'install', ...what] });
    renameSync(work, packages);
    return ok(program);
  } catch (error) {
    rmSync(work, { recursive: true, force: true });
    return fail(`kubernetes-validate ${validateVersion} needs Python with pip: ${String(error)}`);
  }
}
