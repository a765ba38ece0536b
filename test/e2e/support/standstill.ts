/** Loaded into a relay before its own code: its event loop stands still when it is told to. */
function standsStill(): never {
  for (;;);
}

process.on('SIGUSR2', standsStill);
