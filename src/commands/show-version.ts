import { defineCommand } from './command.ts';
import { faultyNode } from './node-version.ts';
import { version } from './version.ts';

const usage = `Usage: distributary version [--json]

Shows the version of this command. That of a running relay: status. On stderr: a warning if this Node has known faults.

  --json       with those of Node and the system, as JSON
  -h, --help   this text

Exit: 0.`;

/** The command `version`: its exit code. */
export const showVersion = defineCommand({
  usage,
  options: { json: { type: 'boolean' } },
  run: async ({ json }, { out, err }) => {
    const { versions, platform, arch } = process;
    const all = { version: version(), node: versions.node, platform, arch };
    out(`${json === true ? JSON.stringify(all, null, 2) : all.version}\n`);
    const fault = faultyNode(versions.node);
    if (fault !== undefined) err(`${fault}\n`);
    return 0;
  },
});
