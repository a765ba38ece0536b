import { nearest } from '../config/suggest.ts';
import { printable } from '../model/printable.ts';
import { catalog } from './catalog.ts';
import { version } from './version.ts';

const usageLine = 'Usage: distributary COMMAND [OPTIONS]';

const usage = (): string => `distributary ${version()}: a caching xDS relay

${usageLine}

${catalog.map(({ name, does }) => `  ${name.padEnd(12)}${does}`).join('\n')}

distributary COMMAND --help shows a command's options; --version the version.
`;

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
  const found = catalog.find((one) => one.name === name);
  if (found === undefined) {
    process.stderr.write(
      `${unknownCommand(name)}\n\n${usageLine}\n\ndistributary --help lists the commands.\n`,
    );
    return 2;
  }
  const command = await found.load();
  return command(rest);
}

function unknownCommand(name: string): string {
  const known = catalog.map((one) => one.name);
  const meant = nearest(name, known);
  const hint = meant === undefined ? `there are ${known.join(', ')}` : `did you mean ${meant}?`;
  return `unknown command ${printable(JSON.stringify(name))}: ${hint}`;
}
