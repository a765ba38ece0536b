import type { Log } from './log.ts';

/**
 * Node writes its warnings to stderr as text, where the log's readers expect JSON lines: from now on they are lines of
 * the log. That a feature is experimental is a matter of our tests, not of operators.
 */
export function logRuntimeWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => {
    const level = name === 'ExperimentalWarning' ? 'debug' : 'warn';
    log[level]('Node.js warning', { name, warning: message });
  });
}
