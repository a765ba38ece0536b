import { wrapped } from '../observe/text-table.ts';
import { version } from '../package/files.ts';
import { diff, history } from './changes.ts';
import { type Command, defineCommand, toggle } from './command.ts';
import { completionOf } from './completion.ts';
import { context } from './context.ts';
import { faultyNode } from './node-version.ts';
import { check, discard, freeze, log, promote, release, rollback, unfreeze } from './operations.ts';
import { reach } from './reach.ts';
import { explain, get, resources } from './resources.ts';
import { run } from './run.ts';
import { clients, load, status } from './status.ts';
import { columnsOf, processTerminal } from './terminal.ts';
import { validate } from './validate.ts';
import { tap, wait } from './wait.ts';

/** Its modules are loaded when it starts: no other command waits for them. */
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

export const usageLine = 'Usage: distributary COMMAND [OPTIONS]';

/** What `--help` says. */
export function usage(): string {
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
