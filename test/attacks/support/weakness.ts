/** Loaded into a relay before its own code, so that the tests can see whether the suite notices a weakness. */
const megabyte = 1024 * 1024;
const kept: Buffer[] = [];

/** The event loop is blocked, as by a request that costs too much: two seconds of the processor, five times what is accepted on a machine that is half as fast. */
process.on('SIGVTALRM', () => {
  const { user, system } = process.cpuUsage();
  let used = 0;
  while (used < 2_000_000) {
    const now = process.cpuUsage();
    used = now.user + now.system - user - system;
  }
});

/** Memory stays, as of a request that is remembered. */
process.on('SIGWINCH', () => {
  kept.push(Buffer.alloc(20 * megabyte, 1));
});
