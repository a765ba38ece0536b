import { Distributary } from '../assembly/distributary.ts';
import { parseConfig } from '../config/load.ts';
import { problemLine } from '../config/source.ts';
import { fail, type Result } from '../model/result.ts';
import { createLog } from '../observe/log.ts';
import { executable } from '../package/files.ts';
import { defineCommand } from './command.ts';
import { DemoClient } from './demo-client.ts';
import { type DemoFiles, demoFiles } from './demo-files.ts';
import { Narrator } from './demo-narrator.ts';
import { firstSignal } from './signals.ts';
import { processTerminal, type Terminal } from './usage.ts';
import { version } from './version.ts';

const usage = `Usage: distributary demo [--once]

A relay over the sample resources in deploy/demo/resources, and three sample clients, two of node.metadata.env prod and
one of test, that print what they receive. A change goes to one client of each environment first, and to the other when
that one has accepted it. Nothing else is needed. Runs until Ctrl-C.

  --once      end when the clients have everything
  -h, --help  this text

Exit: 0; 1 if the relay cannot start or the clients do not get everything in time.`;

/** How these commands are called: in a checkout, or where the package is installed. */
const self =
  !executable && import.meta.filename.endsWith('.ts') ? 'node_modules/.bin/node src/main.ts' : 'distributary';

/** One of two clients of a class hears of a change before the other. */
const sampleClients = [
  { id: 'prod', env: 'prod' },
  { id: 'prod2', env: 'prod' },
  { id: 'test', env: 'test' },
] as const;
/** As in deploy/demo/relay.yaml. */
const rollout = { canary: { percent: 1 }, bake: '5s', max_wait: '1m' };
/** How long the clients may take to get everything, in milliseconds. */
const everythingTimeoutMs = 15_000;

/** The command `demo`: its exit code. */
export const demo = defineCommand({
  usage,
  options: { once: { type: 'boolean' } },
  run: async (values, terminal) => {
    const files = demoFiles();
    try {
      return await show(files, values.once === true, terminal);
    } finally {
      files.remove();
    }
  },
});

async function show(files: DemoFiles, once: boolean, terminal: Terminal): Promise<number> {
  const started = await startRelay(files, once, terminal);
  if (!started.ok) {
    terminal.err(`${started.error}\n`);
    return 1;
  }
  const relay = started.value;
  const interrupted = firstSignal('SIGINT', 'SIGTERM');
  const addresses = new Map(relay.listeners.map(({ name, address }) => [name, address]));
  const xds = addresses.get('xds') ?? '';
  const admin = `http://${addresses.get('admin') ?? ''}`;
  terminal.out(`A relay over ${files.resources} and three clients that ask it for everything.\n\n`);
  const clients = sampleClients.map((sample) => startClient(sample, xds, admin, terminal));
  try {
    const everything = Promise.all(clients.map(({ narrator }) => narrator.everything));
    const outcome = await Promise.race([everything, interrupted.promise, timeout(everythingTimeoutMs)]);
    if (outcome === 'too late') {
      terminal.err(`the clients did not get everything within ${everythingTimeoutMs / 1000} s\n`);
      return 1;
    }
    if (typeof outcome === 'string') return 0;
    terminal.out(epilogue(xds, admin, once ? undefined : files));
    if (!once) await interrupted.promise;
    return 0;
  } finally {
    interrupted.release();
    for (const { client } of clients) client.close();
    await relay.drain();
  }
}

/** At the default addresses, where the other commands look; at free ones if those are taken, or with --once. */
async function startRelay(
  { resources }: DemoFiles,
  once: boolean,
  terminal: Terminal,
): Promise<Result<Distributary>> {
  const usual = once ? undefined : await startAt(resources, 18_000, 19_000, terminal);
  return usual?.ok === true ? usual : startAt(resources, 0, 0, terminal);
}

async function startAt(
  resources: string,
  xds: number,
  admin: number,
  terminal: Terminal,
): Promise<Result<Distributary>> {
  const text = JSON.stringify({
    node: { id: 'relay-demo', cluster: 'relays' },
    xds: { address: `127.0.0.1:${xds}` },
    admin: { address: `127.0.0.1:${admin}` },
    upstreams: [{ name: 'files', filesystem: { path: resources } }],
    parameters: ['env', 'version'].map((key) => ({ key, from: `node.metadata.${key}` })),
    rollout,
    drain_timeout: '1s',
  });
  const config = parseConfig(text, 'demo', terminal.environment);
  if (!config.ok) return fail(config.error.map((problem) => problemLine('demo', problem)).join('\n'));
  const log = createLog({ format: 'text', write: (line) => sayWhatMatters(line, terminal) });
  return Distributary.start(config.value, { log, version: version(), processMetrics: true });
}

/** Whoever edits a file wants to know what is wrong with it, and not what else a relay logs. */
function sayWhatMatters(line: string, terminal: Terminal): void {
  if (/^\S+ (WARN|ERROR|INFO +resolved:) /.test(line)) terminal.err(line);
}

function startClient(
  { id, env }: (typeof sampleClients)[number],
  xds: string,
  admin: string,
  terminal: Terminal,
) {
  const narrator = new Narrator({
    client: id,
    env,
    admin,
    say: (line) => terminal.out(`${line}\n`),
    colours: colours(terminal),
  });
  const client = new DemoClient({
    address: xds,
    id: `demo-${id}`,
    metadata: { env },
    received: (response) => narrator.received(response),
    rejected: (response, reason) => narrator.rejected(response, reason),
    ended: (reason) => narrator.ended(reason),
  });
  return { narrator, client };
}

function colours(terminal: Terminal): boolean {
  return (
    terminal === processTerminal && process.stdout.isTTY && terminal.environment['NO_COLOR'] === undefined
  );
}

/** `files`: where the relay goes on. */
function epilogue(xds: string, admin: string, files: DemoFiles | undefined): string {
  const lines = [
    '',
    'The same names, but each client got the variant for its environment; variants without constraints are for all.',
  ];
  if (files === undefined) return `${lines.join('\n')}\n`;
  lines.push(
    '',
    `  xds    ${xds}  Envoy and gRPC clients connect here`,
    `  admin  ${admin}/  the status page`,
    '',
    `  ${self} status --admin ${admin}`,
    `  ${self} explain --admin ${admin} --type cds --name shop --param env=test`,
    '',
    `Edit a file in ${files.resources} and see who gets what: one client of each environment, and 5 s later the other.`,
    'A listener that clients reject stops at the first. Keep a copy of the old file: put it back, and nothing waits:',
    '',
    `  cp ${files.broken} ${files.resources}/`,
    '',
    'Ctrl-C ends.',
    '',
    '',
  );
  return lines.join('\n');
}

function timeout(milliseconds: number): Promise<'too late'> {
  return new Promise((resolve) => {
    setTimeout(() => resolve('too late'), milliseconds).unref();
  });
}
