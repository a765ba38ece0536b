import { setTimeout as wait } from 'node:timers/promises';
import type { Terminal } from './usage.ts';

/** How often --watch asks, in milliseconds. */
const intervalMs = 2000;

export const watchUsage = (width: number): string =>
  `  ${'--watch'.padEnd(width)}again every ${intervalMs / 1000} s, until Ctrl-C`;

/**
 * Shows what `read` gives, over and over, until Ctrl-C. A terminal is cleared each time and shows what fits; elsewhere
 * each text is written once, until it changes. The first failure is the caller's; later ones are shown, because the relay
 * may come back.
 */
export async function watch(
  terminal: Terminal,
  read: () => Promise<string>,
  explain: (error: unknown) => string,
): Promise<0> {
  const interrupted = new AbortController();
  const interrupt = (): void => interrupted.abort();
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
  try {
    let shown = '';
    let text = await read();
    while (!interrupted.signal.aborted) {
      if (terminal.screen !== undefined || text !== shown) show(terminal, text);
      shown = text;
      await wait(intervalMs, undefined, { signal: interrupted.signal }).catch(() => {});
      if (interrupted.signal.aborted) break;
      text = await read().catch(explain);
    }
    return 0;
  } finally {
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  }
}

/** Moves the cursor home and clears the screen. */
const clear = '\u001B[H\u001B[2J';

function show({ screen, out }: Terminal, text: string): void {
  if (screen === undefined) {
    out(`${text}\n`);
    return;
  }
  const lines = text.split('\n');
  const room = Math.max(2, screen.rows()) - 1;
  const rest = lines.length - room + 1;
  const fitting = lines.length <= room ? lines : [...lines.slice(0, room - 1), `and ${rest} more lines`];
  out(`${clear}${fitting.join('\n')}\n`);
}
