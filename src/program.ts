/** What a process of the relay runs: a worker, if the primary has started it; else the command line. */
export async function program(): Promise<void> {
  // Without IPC it is none, and need not have node:cluster.
  if (process.connected && (await import('node:cluster')).default.isWorker) {
    (await import('./workers/main.ts')).runWorker();
    return;
  }
  const { commandLine } = await import('./commands/command-line.ts');
  // Not process.exit: what is still on its way to a pipe would be lost.
  process.exitCode = await commandLine(process.argv.slice(2));
}
