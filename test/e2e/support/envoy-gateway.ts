import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { cached, temporaryDirectory } from './paths.ts';
import { Process, run } from './process.ts';
import { recipePath } from './recipe.ts';

const version = '1.9.1';
/** They cannot be configured. */
const ports = [18_000, 18_002, 8081, 19_000, 19_001];

/** Path of Envoy Gateway, built once from its Go module, which takes minutes; the error says why there is none. */
export async function envoyGatewayBinary(): Promise<Result<string>> {
  const directory = cached(`envoy-gateway-${version}`);
  const binary = join(directory, 'envoy-gateway');
  try {
    const args = ['install', `github.com/envoyproxy/gateway/cmd/envoy-gateway@v${version}`];
    if (!existsSync(binary)) await run({ command: 'go', args, env: { GOBIN: directory } });
  } catch (error) {
    return fail(`Envoy Gateway ${version} needs Go and its modules: ${String(error)}`);
  }
  for (const port of ports) {
    if (!(await isFree(port))) return fail(`Envoy Gateway has fixed ports, and ${port} is taken`);
  }
  return ok(binary);
}

function isFree(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const server = createServer();
  server.once('error', () => resolve(false));
  server.listen(port, '0.0.0.0', () => server.close(() => resolve(true)));
  return promise;
}

/** Envoy Gateway in standalone mode with the files of the recipe, in directories of its own. */
export class EnvoyGateway implements AsyncDisposable {
  readonly address = '127.0.0.1:18000';
  readonly #binary: string;
  readonly #stack = new AsyncDisposableStack();
  readonly #root = this.#stack.use(temporaryDirectory()).path;
  #process: Process | undefined;

  constructor(binary: string) {
    this.#binary = binary;
    for (const name of ['resources', 'data/envoy-versions/1.40.0/bin']) {
      mkdirSync(join(this.#root, name), { recursive: true });
    }
    // It would fetch an Envoy and run it, on the ports of the Gateway.
    copyFileSync(
      recipePath('envoy-gateway/no-proxy'),
      join(this.#root, 'data/envoy-versions/1.40.0/bin/envoy'),
    );
    const config = readFileSync(recipePath('envoy-gateway/envoy-gateway.yaml'), 'utf8')
      .replaceAll('/etc/envoy-gateway', this.#root)
      .replaceAll('/var/lib/envoy-gateway', this.#root);
    writeFileSync(this.#at('envoy-gateway.yaml'), config);
  }

  /** tls.crt, tls.key and ca.crt of the proxies. */
  get certificates(): string {
    return this.#at('certs/envoy');
  }

  get output(): string {
    return this.#process?.output ?? '';
  }

  makeCertificates(): Promise<string> {
    return run({ command: this.#binary, args: ['certgen', '--local', '--config-home', this.#root] });
  }

  /** What the Gateway does: its port, and the port of its backend. */
  write(listener: number, backend: number): void {
    const text = readFileSync(recipePath('envoy-gateway/gateway.yaml'), 'utf8')
      .replace('port: 8888', `port: ${listener}`)
      .replace('port: 9001', `port: ${backend}`)
      // It is written to /dev/stdout, which cannot be opened where that is a socket.
      .replace('  provider:', '  telemetry: { accessLog: { disable: true } }\n  provider:');
    writeFileSync(this.#at('resources/gateway.yaml'), text);
  }

  async start(): Promise<void> {
    const args = ['server', '--config-path', this.#at('envoy-gateway.yaml')];
    const child = new Process({ command: this.#binary, args, env: { HOME: this.#root } });
    this.#process = child;
    await child.line(/"key": "envoy-gateway-system\/eg"/);
  }

  async kill(): Promise<void> {
    await this.#process?.stop('SIGKILL');
  }

  #at(name: string): string {
    return join(this.#root, name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await this.#stack.disposeAsync();
  }
}
