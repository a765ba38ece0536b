import { printable, unknownWord } from '../model/text.ts';
import { levels, logFormats } from '../observe/log-levels.ts';
import { version } from '../package/files.ts';
import { diff, history } from './changes.ts';
import { clients } from './clients.ts';
import { type Command, defineCommand, file, oneOf, required, toggle } from './command.ts';
import { completionOf } from './completion.ts';
import { context } from './context.ts';
import { explain } from './explain.ts';
import { load } from './load.ts';
import { log } from './log.ts';
import { faultyNode } from './node-version.ts';
import { check, discard, freeze, promote, release, rollback, unfreeze } from './operations.ts';
import { reach } from './reach.ts';
import { get, resources } from './resources.ts';
import { status } from './status.ts';
import { tap } from './tap.ts';
import { columnsOf, processTerminal, wrapped } from './terminal.ts';
import { validate } from './validate.ts';
import { wait } from './wait.ts';

// The commands that are relays. Their modules are loaded only when one starts: no other command waits for them.

const run = defineCommand({
  name: 'run',
  does: 'runs the relay',
  about:
    'Runs the relay until SIGTERM or SIGINT, then drains. SIGHUP, or a change of the file, reloads the configuration.',
  flags: {
    config: required(file('FILE', 'YAML or JSON; see config.schema.json')),
    'log-level': oneOf(
      'LEVEL',
      levels,
      `${levels.join(', ')}; default info. distributary log changes it for a limited time`,
    ),
    'log-format': oneOf('FORMAT', logFormats, `${logFormats.join(' or ')}, on stderr; default json`),
  },
  exit: '0 after a drain, 2 for a bad command line or configuration, 1 for anything else.',
  run: async ({ config, 'log-level': level = 'info', 'log-format': format = 'json' }, { terminal }) =>
    (await import('./serve.ts')).serve(config, level, format, terminal),
});

export const demo = defineCommand({
  name: 'demo',
  does: 'runs a relay over sample resources with three sample clients',
  about: `Runs a relay over the sample resources in deploy/demo/resources, and three sample clients, two with node.metadata.env prod
and one with test, that print what they receive. A change goes to one client of each environment first, and to the other when
that one has accepted it. Nothing else is needed. Runs until Ctrl-C.`,
  flags: { once: toggle('end when the clients have everything') },
  exit: '0; 1 if the relay cannot start or the clients do not get everything in time.',
  run: async ({ once }, { terminal }) => (await import('./demo.ts')).runDemo(once, terminal),
});

const showVersion = defineCommand({
  name: 'version',
  does: 'shows the version',
  about:
    'Shows the version of this command; status shows that of a running relay. Warns on stderr if this Node has known vulnerabilities.',
  flags: { json: toggle('with those of Node and the system, as JSON') },
  exit: '0.',
  run: async ({ json }, { terminal: { out, err } }) => {
    const { versions, platform, arch } = process;
    const all = { version: version(), node: versions.node, platform, arch };
    out(`${json ? JSON.stringify(all, null, 2) : all.version}\n`);
    const fault = faultyNode(versions.node);
    if (fault !== undefined) err(`${fault}\n`);
    return 0;
  },
});

const seeing = [status, clients, resources, get, explain, history, diff, wait, check, load, tap, reach];
const changing = [rollback, freeze, unfreeze, promote, release, discard, log];

export const commands: readonly Command[] = [
  ...[run, validate],
  ...seeing,
  ...changing,
  ...[context, demo, completionOf(() => commands), showVersion],
];

const usageLine = 'Usage: distributary COMMAND [OPTIONS]';

function usage(): string {
  const columns = columnsOf(processTerminal);
  const lines = commands.map(({ name, does }) =>
    wrapped(`\u00A0\u00A0${name.padEnd(12, '\u00A0')}${does}`, columns, 14),
  );
  return `distributary ${version()}: a caching xDS relay

${usageLine}

${lines.join('\n')}

distributary COMMAND --help shows a command's options; --version its version.
`;
}

/** The command `distributary` with what follows it: its exit code. */
export async function commandLine(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv;
  if (argv.includes('--version')) {
    process.stdout.write(`${version()}\n`);
    return 0;
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(usage());
    return 0;
  }
  if (name === undefined) {
    process.stderr.write(`a command is missing\n\n${usage()}`);
    return 2;
  }
  const command = commands.find((one) => one.name === name);
  if (command !== undefined) return command(rest);
  process.stderr.write(
    `${unknownCommand(name)}\n\n${usageLine}\n\ndistributary --help lists the commands.\n`,
  );
  return 2;
}

const unknownCommand = (name: string): string =>
  printable(
    unknownWord(
      'command',
      name,
      commands.map((one) => one.name),
    ),
  );
