import { outdatedNode } from './commands/node-version.ts';

const outdated = outdatedNode(process.versions.node, process.execPath);
if (outdated === undefined) {
  // Loaded only now: an older Node may not be able to read any other module of the relay.
  const { program } = await import('./program.ts');
  await program();
} else {
  process.stderr.write(`${outdated}\n`);
  process.exitCode = 1;
}
