import { version } from '../package/files.ts';
import { defineCommand, toggle } from './command.ts';
import { faultyNode } from './node-version.ts';

export const showVersion = defineCommand({
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
