/** Loaded into a relay before its own code, so that the tests can see whether the suite notices a weakness. */
const megabyte = 1024 * 1024;
const kept: Buffer[] = [];

/** The event loop is blocked, as by a request that costs too much: a second of the processor, more than the slowest machine is given. */
process.on('SIGVTALRM', () => {
  const { user, system } = process.cpuUsage();
  let used = 0;
  while (used < 1_000_000) {
    const now = process.cpuUsage();
    used = now.user + now.system - user - system;
  }
});

/** Memory stays, as of a request that is remembered. */
process.on('SIGWINCH', () => {
  kept.push(Buffer.alloc(20 * megabyte, 1));
});
