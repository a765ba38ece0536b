import { outdatedNode } from './commands/node-version.ts';
import { version } from './commands/version.ts';

const usage = `distributary ${version()}: a caching xDS relay

Usage: distributary COMMAND [OPTIONS]

  run --config FILE        the relay
  validate --config FILE   checks a configuration without running it
  status                   upstreams, clients, types and rejections of a running relay
  clients                  who is connected, with what was sent and whether it was accepted
  resources                what is cached
  get                      a resource as YAML, or what a client was sent of it
  explain                  which variant of a resource a client gets, and why
  history                  what has changed
  diff                     what differs between two revisions, clients or parameter sets
  rollback                 the gated types as they were after a revision
  wait                     until every client has accepted what upstream has
  tap                      messages to and from clients, live
  freeze, unfreeze         nothing that is known changes, until unfreeze
  release, discard         a change that only canaries have: for everybody, or for nobody
  log                      another log level for a time
  demo                     a relay over sample resources with two sample clients

distributary COMMAND --help shows a command's options; --version the version.
`;

type Command = (argv: readonly string[]) => Promise<number>;

/** Loaded when asked for: a probe's `status` need not wait for a server's modules. */
const commands = new Map<string, () => Promise<Command>>([
  ['run', async () => (await import('./commands/run.ts')).run],
  ['validate', async () => (await import('./commands/validate.ts')).validate],
  ['status', async () => (await import('./commands/status.ts')).status],
  ['explain', async () => (await import('./commands/explain.ts')).explain],
  ['clients', async () => (await import('./commands/clients.ts')).clients],
  ['resources', async () => (await import('./commands/resources.ts')).resources],
  ['get', async () => (await import('./commands/get.ts')).get],
  ['history', async () => (await import('./commands/history.ts')).history],
  ['diff', async () => (await import('./commands/diff.ts')).diff],
  ['rollback', async () => (await import('./commands/rollback.ts')).rollback],
  ['wait', async () => (await import('./commands/wait.ts')).wait],
  ['tap', async () => (await import('./commands/tap.ts')).tap],
  ['freeze', async () => (await import('./commands/operations.ts')).freeze],
  ['unfreeze', async () => (await import('./commands/operations.ts')).unfreeze],
  ['release', async () => (await import('./commands/operations.ts')).release],
  ['discard', async () => (await import('./commands/operations.ts')).discard],
  ['log', async () => (await import('./commands/log.ts')).log],
  ['demo', async () => (await import('./commands/demo.ts')).demo],
]);

async function main(argv: readonly string[]): Promise<number> {
  const outdated = outdatedNode(process.versions.node, process.execPath);
  if (outdated !== undefined) {
    process.stderr.write(`${outdated}\n`);
    return 1;
  }
  const [name, ...rest] = argv;
  if (argv.includes('--version')) {
    process.stdout.write(`${version()}\n`);
    return 0;
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(usage);
    return 0;
  }
  const load = commands.get(name ?? '');
  if (load === undefined) {
    const problem = name === undefined ? 'a command is missing' : `unknown command ${JSON.stringify(name)}`;
    process.stderr.write(`${problem}\n\n${usage}`);
    return 2;
  }
  const command = await load();
  return command(rest);
}

// Not process.exit: what is still on its way to a pipe would be lost.
process.exitCode = await main(process.argv.slice(2));
