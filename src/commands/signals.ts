export interface SignalWait {
  readonly promise: Promise<NodeJS.Signals>;
  /** Stops waiting. */
  release(): void;
}

/** Waits for the first of these signals. A second one ends the process at once, because the handlers are gone by then. */
export function firstSignal(...signals: readonly NodeJS.Signals[]): SignalWait {
  const { promise, resolve } = Promise.withResolvers<NodeJS.Signals>();
  const release = (): void => {
    for (const signal of signals) process.off(signal, caught);
  };
  const caught = (signal: NodeJS.Signals): void => {
    release();
    resolve(signal);
  };
  for (const signal of signals) process.on(signal, caught);
  return { promise, release };
}
