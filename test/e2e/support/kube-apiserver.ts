import { generateKeyPairSync } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { ownPort } from '../../support/ports.ts';
import { debianBinaries } from './debian.ts';
import { eventually } from './eventually.ts';
import { cached, root, type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { Process, run } from './process.ts';

const module = join(root, 'test/long/apiserver');
const version = 'v1.37.2';
/** Without it the server does not know its version, and Helm refuses it. */
const versionFlag = `-X k8s.io/component-base/version.gitVersion=${version}`;

export interface ApiserverBinaries {
  readonly apiserver: string;
  readonly etcd: string;
}

/** kube-apiserver, built once from its Go module, and Debian's etcd; the error says why there is none. */
export async function apiserverBinaries(): Promise<Result<ApiserverBinaries>> {
  const etcd = await debianBinaries('etcd-server');
  if (!etcd.ok) return etcd;
  const apiserver = join(cached('kube-apiserver'), `kube-apiserver-${version}`);
  const built = { apiserver, etcd: join(etcd.value, 'etcd') };
  if (existsSync(apiserver)) return ok(built);
  try {
    const flags = ['-buildvcs=false', '-trimpath', `-ldflags=-s -w ${versionFlag}`, '-o', apiserver];
    const args = ['go', 'build', ...flags, 'k8s.io/kubernetes/cmd/kube-apiserver'];
    await run({ command: 'nice', args, cwd: module });
    return ok(built);
  } catch (error) {
    return fail(`kube-apiserver ${version} needs Go and its modules: ${String(error)}`);
  }
}

/** A real API server of Kubernetes with an etcd. There are no controllers and no nodes: objects are stored. */
export class KubeApiserver implements AsyncDisposable {
  readonly kubeconfig: string;
  readonly #kubectl: string;
  readonly #files: TemporaryDirectory;
  readonly #processes: readonly Process[];

  private constructor(
    kubeconfig: string,
    kubectl: string,
    files: TemporaryDirectory,
    processes: readonly Process[],
  ) {
    this.kubeconfig = kubeconfig;
    this.#kubectl = kubectl;
    this.#files = files;
    this.#processes = processes;
  }

  static async start({ apiserver, etcd }: ApiserverBinaries, kubectl: string): Promise<KubeApiserver> {
    const files = temporaryDirectory();
    const client = `http://127.0.0.1:${await ownPort()}`;
    const peer = `http://127.0.0.1:${await ownPort()}`;
    const port = await ownPort();
    const data = join(files.path, 'etcd');
    mkdirSync(data, { mode: 0o700 });
    const addresses = [`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`];
    const storage = [`--data-dir=${data}`, '--unsafe-no-fsync', `--listen-peer-urls=${peer}`];
    const processes = [
      new Process({ command: etcd, args: [...addresses, ...storage] }),
      new Process({ command: apiserver, args: apiserverFlags(files.path, client, port) }),
    ];
    const started = new KubeApiserver(writeKubeconfig(files.path, port), kubectl, files, processes);
    try {
      await eventually(() => started.kubectl('get', '--raw', '/readyz'), { timeout: 120_000, pause: 500 });
    } catch (error) {
      const output = processes.map((one) => one.output).join('\n');
      await started[Symbol.asyncDispose]();
      throw new Error(`the API server does not become ready:\n${output}`, { cause: error });
    }
    return started;
  }

  /** Its output; rejects with it unless the command succeeds. */
  kubectl(...args: readonly string[]): Promise<string> {
    return run({ command: this.#kubectl, args: [`--kubeconfig=${this.kubeconfig}`, ...args] });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const one of this.#processes.toReversed()) await one.stop();
    this.#files[Symbol.dispose]();
  }
}

function apiserverFlags(directory: string, etcd: string, port: number): readonly string[] {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs1', format: 'pem' },
  });
  const write = (name: string, content: string): string => {
    writeFileSync(join(directory, name), content);
    return join(directory, name);
  };
  return [
    `--etcd-servers=${etcd}`,
    '--bind-address=127.0.0.1',
    `--secure-port=${port}`,
    `--cert-dir=${join(directory, 'certificates')}`,
    '--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112',
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-account-key-file=${write('accounts.pub', publicKey)}`,
    `--service-account-signing-key-file=${write('accounts.key', privateKey)}`,
    `--token-auth-file=${write('tokens.csv', 'secret,admin,admin,system:masters\n')}`,
    '--authorization-mode=RBAC',
    // No controller makes the account `default` of a namespace.
    '--disable-admission-plugins=ServiceAccount',
  ];
}

function writeKubeconfig(directory: string, port: number): string {
  const cluster = { server: `https://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true };
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'test',
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
    clusters: [{ name: 'test', cluster }],
    users: [{ name: 'admin', user: { token: 'secret' } }],
  };
  const path = join(directory, 'kubeconfig');
  writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
  return path;
}
