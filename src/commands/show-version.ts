import { defineCommand } from './command.ts';
import { version } from './version.ts';

const usage = `Usage: distributary version [--json]

Shows the version of this command. That of a running relay: status.

  --json       with those of Node and the system, as JSON
  -h, --help   this text

Exit: 0.`;

/** The command `version`: its exit code. */
export const showVersion = defineCommand({
  usage,
  options: { json: { type: 'boolean' } },
  run: async ({ json }, { out }) => {
    const { versions, platform, arch } = process;
    const all = { version: version(), node: versions.node, platform, arch };
    out(`${json === true ? JSON.stringify(all, null, 2) : all.version}\n`);
    return 0;
  },
});
