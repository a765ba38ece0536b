import type { Log } from './log.ts';

/**
 * Node writes its warnings to stderr as text. From now on they are JSON lines of the log. Operators need not know that
 * a feature of Node is experimental: that is a debug line.
 */
export function logRuntimeWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => {
    const level = name === 'ExperimentalWarning' ? 'debug' : 'warn';
    log[level]('Node.js warning', { name, warning: message });
  });
}
