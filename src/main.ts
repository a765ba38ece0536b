import { outdatedNode } from './commands/node-version.ts';

const outdated = outdatedNode(process.versions.node, process.execPath);
if (outdated === undefined) {
  // Loaded only now: an older Node may not be able to read any other module of the relay.
  const { commandLine } = await import('./commands/command-line.ts');
  // Not process.exit: what is still on its way to a pipe would be lost.
  process.exitCode = await commandLine(process.argv.slice(2));
} else {
  process.stderr.write(`${outdated}\n`);
  process.exitCode = 1;
}
