import { catalog } from './commands/catalog.ts';
import { outdatedNode } from './commands/node-version.ts';
import { printable } from './commands/printable.ts';
import { version } from './commands/version.ts';
import { nearest } from './config/suggest.ts';

const usageLine = 'Usage: distributary COMMAND [OPTIONS]';

const usage = (): string => `distributary ${version()}: a caching xDS relay

${usageLine}

${catalog.map(({ name, does }) => `  ${name.padEnd(12)}${does}`).join('\n')}

distributary COMMAND --help shows a command's options; --version the version.
`;

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

// Not process.exit: what is still on its way to a pipe would be lost.
process.exitCode = await main(process.argv.slice(2));
