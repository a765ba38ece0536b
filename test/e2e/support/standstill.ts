/** Loaded into a relay before its own code: its event loop stands still when it is told to. */
function standsStill(): never {
  for (;;) Atomics.wait(cell, 0, 0, 5); // others need the processor
}

const cell = new Int32Array(new SharedArrayBuffer(4));

process.on('SIGUSR2', standsStill);
