import { commands as all } from '../../src/commands/commands.ts';
import { heading, table } from './markdown.ts';

const about = `\`distributary COMMAND [OPTIONS]\`. Commands that ask a relay do it through its admin listener, at
\`http://127.0.0.1:19000\` unless \`--admin URL\` says otherwise. A wrong flag is refused with the usage line, and exit 2.
\`distributary --version\` prints the version. Each section is what \`distributary COMMAND --help\` prints.`;

/** docs/reference/commands.md: the help of each command. */
export async function commands(): Promise<string> {
  const rows = all.map(({ name, does }) => [`[${name}](#${name})`, does]);
  const parts: string[] = [];
  for (const command of all) {
    const printed: string[] = [];
    await command(['--help'], { out: (text) => printed.push(text), err: () => {}, environment: {} });
    parts.push(`## ${command.name}\n\n\`\`\`text\n${printed.join('').trimEnd()}\n\`\`\``);
  }
  return `${heading('Commands', about)}\n${table(['command', 'does'], rows)}\n\n${parts.join('\n\n')}\n`;
}
