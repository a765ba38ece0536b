/**
 * Loaded into a relay before its own code: SIGUSR2 writes to stderr for how long the event loop was blocked at most
 * since the last time it was asked. Milliseconds: `cpu` of the thread itself, which other processes cannot lengthen.
 */
const look = 2;

let wall = performance.now();
let cpu = cpuMilliseconds();
let longest = { cpu: 0, wall: 0 };

setInterval(observe, look).unref();

// Whoever starts it may be killed, and cannot end it then; before this runs, too. A relay ends its workers itself.
const startedBy = Number(new URL(import.meta.url).searchParams.get('startedBy'));
const parent = process.send === undefined ? startedBy : process.ppid;
setInterval(() => {
  if (process.ppid !== parent) process.exit(1);
}, 1000).unref();

process.on('SIGUSR2', () => {
  observe();
  process.stderr.write(`blocked ${JSON.stringify(longest)}\n`);
  longest = { cpu: 0, wall: 0 };
});

function observe(): void {
  const now = performance.now();
  const used = cpuMilliseconds();
  longest = { cpu: Math.max(longest.cpu, used - cpu), wall: Math.max(longest.wall, now - wall) };
  [wall, cpu] = [now, used];
}

function cpuMilliseconds(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
